#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "client/api/folder_rules.h"
#include "core/base/units.h"
#include "core/policy/image_name.h"
#include "core/policy/set_naming.h"
#include "tools/ask/commands.h"
#include "tools/ask/set_folders.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/folder_rules.h"
#include "tools/base/set_names.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

const char* state_name(const msg::ListSets::Entry& set, bool known) {
  if (set.complete) return "complete";
  return known || is_named(set) ? "incomplete" : "not known";
}

/// "present/needed" images of a set. A complete set needs only its own number, whatever the folder
/// asks for now.
std::string images_text(const msg::ListSets::Entry& set, std::uint64_t wanted) {
  if (set.complete) wanted = set.images;
  return wanted > 0 ? fmt::format("{}/{}", set.images, wanted) : std::to_string(set.images);
}

/// Returns the names of the sets in the folder of which a non-empty image is there. The image may
/// not count, because another start of the application has written it.
Result<std::set<std::string>> find_sets(client::Filesystem& filesystem, FileId folder,
                                        const client::RulesInForce& rules) {
  std::set<std::string> names;
  if (value_of(rules, "set") == "directory") return names;
  const SetNaming naming = naming_of(rules);
  STDCHK_ASSIGN(const auto entries, filesystem.read_directory(folder));
  for (const auto& entry : entries) {
    const bool is_image = entry.attributes.size_bytes > 0 && naming.parse(entry.name);
    if (is_image) names.insert(naming.set_of(entry.name));
  }
  return names;
}

/// Explains why images of sets do not count, and what the user can do.
void explain_uncounted(const msg::ListSets::Reply& sets, const std::set<std::string>& there) {
  std::string newest;
  std::size_t others = 0;
  for (const auto& set : sets.sets) {
    if (set.complete || set.images > 0 || !there.contains(name_of_set(set))) continue;
    others += newest.empty() ? 0 : 1;
    if (newest.empty()) newest = name_of_set(set);
  }
  if (newest.empty()) return;
  fmt::print(
      "The images of {}{} do not count. Another start of the application has written them, or an\n"
      "earlier pool, and no link in the drain directory names the set. If you know that the set\n"
      "is whole, name it: stdchk restart --set '{}' DIR\n",
      newest, others == 0 ? "" : fmt::format(" and {} others", others), newest);
}

/// Returns what distinguishes the set: the link, a pin, and what keeps it from being complete.
std::string note_of(const msg::ListSets::Entry& set, bool known) {
  std::string note = fmt::format("{}{}", set.latest ? "latest " : "", set.pinned ? "pinned" : "");
  const bool is_judged = known || is_named(set);
  if (set.problem.empty() || !is_judged) return note;
  return note.empty() ? shown(set.problem) : fmt::format("{}; {}", note, shown(set.problem));
}

void print_sets(const msg::ListSets::Reply& sets) {
  const bool any_named = std::ranges::any_of(sets.sets, is_named);
  const bool known = sets.images_wanted > 0 || any_named;
  std::vector<std::vector<std::string>> table = {
      {"SET", "IMAGES", "SIZE", "DRAINED", "STATE", "CHANGED", ""}};
  for (const auto& set : sets.sets) {
    table.push_back({name_of_set(set), images_text(set, sets.images_wanted),
                     format_bytes(set.bytes), fmt::format("{}/{}", set.drained, set.images),
                     state_name(set, known), time_text(set.newest_ns), note_of(set, known)});
  }
  print_table(table, {1, 2, 3});
  if (!known) {
    fmt::print("The number of images in a set is not known: stdchk policy set DIR images=N\n");
  }
}

Json to_json(const msg::ListSets::Reply& sets, const std::vector<std::string>& faults) {
  Json list = Json::array();
  for (const auto& set : sets.sets) {
    list.push_back({{"set", name_of_set(set)},
                    {"application", is_named(set) ? Json() : Json(set.application)},
                    {"timestep", is_named(set) ? Json() : Json(set.timestep)},
                    {"images", set.images},
                    {"drained", set.drained},
                    {"size_bytes", set.bytes},
                    {"newest_ns", set.newest_ns},
                    {"complete", set.complete},
                    {"pinned", set.pinned},
                    {"latest", set.latest},
                    {"problem", set.problem.empty() ? Json() : Json(set.problem)}});
  }
  return {{"images_wanted", sets.images_wanted}, {"sets", list}, {"warnings", faults}};
}

int list_sets(const SetOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  const auto sets = located->filesystem->sets(located->attributes.id);
  if (!sets) return complain(fmt::format("{}: {}", options.path, describe(sets.error())));
  const auto rules = find_rules(*located->filesystem, located->path);
  if (!rules) return complain(rules.error().text);
  const auto faults =
      faults_of_sets(*located->filesystem, located->path, located->attributes.id, *rules);
  if (!faults) return complain(fmt::format("{}: {}", options.path, faults.error().text));
  if (options.json) {
    print(to_json(*sets, *faults));
  } else {
    print_sets(*sets);
    const auto there = find_sets(*located->filesystem, located->attributes.id, *rules);
    if (!there) return complain(fmt::format("{}: {}", options.path, describe(there.error())));
    explain_uncounted(*sets, *there);
    for (const std::string& fault : *faults) {
      fmt::print(stderr, "stdchk: warning: {}: {}\n", options.path, shown(fault));
    }
  }
  return kExitGood;
}

int commit_set(const SetOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  if (located->attributes.type != FileType::kDirectory) {
    return complain(fmt::format("{} is not a folder", options.path));
  }
  const Status done = client::commit_set(*located->filesystem, located->attributes.id);
  if (!done) return complain(fmt::format("{}: {}", options.path, describe(done.error())));
  return kExitGood;
}

/// Pins or unpins a set. A pin is an extended attribute of the set's folder, so getfattr(1) shows
/// it.
int pin_set(const SetOptions& options, bool pin) {
  std::string path = options.path;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  // An image's name stands for its set.
  if (const auto set = parse_image_name(name)) name = set_name(set->application, set->timestep);
  auto located = locate(options.pool, slash == std::string::npos ? "." : path.substr(0, slash));
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  if (pin) {
    const auto sets = filesystem.sets(located->attributes.id);
    if (!sets) return complain(describe(sets.error()));
    const bool there =
        std::ranges::any_of(sets->sets, [&](const auto& one) { return name_of_set(one) == name; });
    if (!there) {
      return complain(
          fmt::format("there is no set {} in that folder. A set is A.*.Tj, or a directory by the "
                      "rule set=directory. `stdchk set list` shows the sets",
                      name));
    }
  }
  msg::SetXattr change;
  change.file = located->attributes.id;
  change.name = "user.stdchk.pin." + name;
  change.value = "1";
  change.remove = !pin;
  const Status done = filesystem.set_xattr(change);
  if (!done && !pin && done.error().code == Code::kNoAttribute) {
    return complain(fmt::format("the set {} is not pinned", name));
  }
  if (!done) return complain(fmt::format("{}: {}", options.path, describe(done.error())));
  return kExitGood;
}

}  // namespace

int run_set(const SetOptions& options) {
  if (options.action == "list") return list_sets(options);
  if (options.action == "pin" || options.action == "unpin") {
    return pin_set(options, options.action == "pin");
  }
  if (options.action == "commit") return commit_set(options);
  return complain(fmt::format("set \"{}\" is not known; there are list, pin, unpin and commit",
                              options.action));
}

}  // namespace stdchk::tools
