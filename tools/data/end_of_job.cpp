#include "tools/data/end_of_job.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "client/api/folder_rules.h"
#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "core/policy/image_name.h"
#include "core/policy/name_patterns.h"
#include "core/policy/policy.h"
#include "tools/base/connection.h"
#include "tools/base/folder_rules.h"
#include "tools/base/left_out.h"
#include "tools/base/set_names.h"
#include "tools/base/show.h"
#include "tools/drained/drained_objects.h"
#include "tools/drained/manifest_change.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLatest = "latest";
constexpr std::size_t kPointerBytesMax = 4096;

/// A Place is a folder of the pool with the settings in force there.
struct Place {
  std::string path;
  FileId folder;
  Policy policy;
  client::RulesInForce rules;

  bool by_directory() const { return value_of(rules, "set") == "directory"; }
};

/// The entries of a folder that concern its sets.
struct Contents {
  SetIndex index;                     ///< of the files
  std::vector<std::string> pointers;  ///< files that name a set
  std::string pointer_text;           ///< what all of them say
};

/// A Choice lists the names of a folder's sets to remove, and of those among them to drain before.
struct Choice {
  std::set<std::string> go;
  std::set<std::string> wait;  ///< given up, but must be drained before
  std::set<std::string> stay;
};

/// Returns the beginning of a file.
Outcome<std::string> read_beginning(client::Filesystem& filesystem,
                                    const msg::DirectoryEntry& entry) {
  client::OpenFlags flags;
  flags.read = true;
  const auto file = filesystem.open(entry.attributes.id, flags);
  if (!file) return failed(entry.name, file.error());
  std::string text(kPointerBytesMax, '\0');
  const auto count = (*file)->read(0, std::as_writable_bytes(std::span(text)));
  if (!count) return failed(entry.name, count.error());
  text.resize(*count);
  return text;
}

Outcome<Contents> contents_of(client::Filesystem& filesystem, const Place& place) {
  const auto entries = filesystem.read_directory(place.folder);
  if (!entries) return failed(place.path, entries.error());
  Contents out{SetIndex(naming_of(place.rules)), {}, {}};
  const NamePatterns pointers(value_of(place.rules, "pointer"));
  for (const auto& entry : *entries) {
    if (entry.attributes.type != FileType::kRegular) continue;
    if (!place.by_directory()) {
      out.index.add(entry.name);
    } else if (pointers.match(entry.name)) {
      auto text = read_beginning(filesystem, entry);
      if (!text) return problem(text.error());
      out.pointers.push_back(entry.name);
      out.pointer_text += *text + "\n";
    }
  }
  return out;
}

/// The sets of an application follow each other; all directories of a folder are one application.
std::string application_of(const msg::ListSets::Entry& set, const Contents& contents) {
  if (!is_named(set)) return set.application;
  const auto key = contents.index.find(set.application);
  return key ? key->first : std::string();
}

/// `sets`: newest first. With end=last, a directory that a pointer names stays, too.
Choice choose(const msg::ListSets::Reply& sets, const Policy& policy, const Contents& contents) {
  const auto end = static_cast<EndOfJob>(policy.get(PolicyKey::kEnd));
  const bool must_be_drained = policy.get(PolicyKey::kMustBeDrained) != 0;
  Choice choice;
  std::set<std::string> have_last;
  for (const auto& set : sets.sets) {
    const std::string name = name_of_set(set);
    const std::string application = application_of(set, contents);
    const bool last = set.complete && have_last.insert(application).second;
    // Without a complete set, no set counts more than another.
    const bool older =
        have_last.contains(application) && !last && !is_named_by(contents.pointer_text, name);
    const bool given_up = end == EndOfJob::kRemove || (end == EndOfJob::kLast && older);
    const bool waits = given_up && must_be_drained && set.drained < set.images;
    const bool stays = !given_up || set.pinned;
    (stays ? choice.stay : waits ? choice.wait : choice.go).insert(name);
  }
  return choice;
}

/// Removes a file or an empty directory of the pool; it may be gone already.
Outcome<void> remove_name(client::Filesystem& filesystem, FileId folder, const std::string& path,
                          const std::string& name, bool is_directory, Cleared& cleared) {
  const auto done = filesystem.remove(folder, name, is_directory);
  if (!done && done.error().code != Code::kNotFound) return failed(name, done.error());
  if (!is_directory) cleared.removed[path].push_back(name);
  return {};
}

/// A Doomed is an entry of a directory that is removed.
struct Doomed {
  FileId folder;
  std::string path;  ///< of the folder
  std::string name;
  bool is_directory = false;
};

/// Lists all that is below the directory; a directory comes after its entries.
Outcome<void> list_below(client::Filesystem& filesystem, FileId directory, const std::string& path,
                         std::vector<Doomed>& out) {
  const auto entries = filesystem.read_directory(directory);
  if (!entries) return failed_unless_gone(path, entries.error());
  for (const auto& entry : *entries) {
    const bool is_directory = entry.attributes.type == FileType::kDirectory;
    if (is_directory) {
      auto listed = list_below(filesystem, entry.attributes.id, path + "/" + entry.name, out);
      if (!listed) return listed;
    }
    out.push_back({directory, path, entry.name, is_directory});
  }
  return {};
}

/// Removes a set that is a directory. Its marker goes first: a loss of the pool in between leaves
/// no directory that calls itself whole.
Outcome<void> remove_directory(client::Filesystem& filesystem, const Place& place,
                               const std::string& name, Cleared& cleared) {
  const auto directory = filesystem.lookup_fresh(place.folder, name);
  if (!directory && directory.error().code == Code::kNotFound) return {};
  if (!directory) return failed(name, directory.error());
  std::vector<Doomed> names;
  const std::string path = place.path.empty() ? name : place.path + "/" + name;
  if (auto listed = list_below(filesystem, directory->id, path, names); !listed) return listed;
  const NamePatterns markers(value_of(place.rules, "marker"));
  // Clang 14 does not compile std::ranges::stable_partition of GCC 12's library.
  std::stable_partition(names.begin(), names.end(), [&](const Doomed& one) {
    return !one.is_directory && one.folder == directory->id && markers.match(one.name);
  });
  names.push_back({place.folder, place.path, name, true});
  for (const Doomed& one : names) {
    auto done = remove_name(filesystem, one.folder, one.path, one.name, one.is_directory, cleared);
    if (!done) return done;
  }
  return {};
}

Outcome<void> remove_set(client::Filesystem& filesystem, const Place& place,
                         const Contents& contents, const std::string& name, Cleared& cleared) {
  if (place.by_directory()) return remove_directory(filesystem, place, name, cleared);
  const auto key = contents.index.find(name);
  if (!key) return {};
  for (const SetMember& member : contents.index.members(*key)) {
    auto done = remove_name(filesystem, place.folder, place.path, member.name, false, cleared);
    if (!done) return done;
  }
  return {};
}

/// Removes the pointers if they name none of the sets that stay: a program would look for a
/// directory that is gone.
Outcome<void> remove_pointers(client::Filesystem& filesystem, const Place& place,
                              const Contents& contents, const Choice& choice, Cleared& cleared) {
  const auto names = [&](const std::string& set) {
    return is_named_by(contents.pointer_text, set);
  };
  if (choice.go.empty() || std::ranges::any_of(choice.stay, names) ||
      std::ranges::any_of(choice.wait, names)) {
    return {};
  }
  for (const std::string& pointer : contents.pointers) {
    auto done = remove_name(filesystem, place.folder, place.path, pointer, false, cleared);
    if (!done) return done;
  }
  return {};
}

Outcome<void> clear_folder(client::Filesystem& filesystem, const Place& place, Cleared& cleared) {
  cleared.removed.try_emplace(place.path);
  for (;;) {  // lists page by page; the list of sets is finite
    const auto sets = filesystem.sets(place.folder);
    if (!sets) return failed(place.path, sets.error());
    if (sets->sets.empty()) return {};
    const auto contents = contents_of(filesystem, place);
    if (!contents) return problem(contents.error());
    const Choice choice = choose(*sets, place.policy, *contents);
    std::set<std::string>& removed = cleared.sets[place.path];
    const std::size_t before = removed.size();
    auto done = remove_pointers(filesystem, place, *contents, choice, cleared);
    if (!done) return done;
    for (const std::string& name : choice.go) {
      done = remove_set(filesystem, place, *contents, name, cleared);
      if (!done) return done;
      removed.insert(name);
    }
    if (removed.size() > before && sets->sets.size() == limits::kSetsMax) continue;
    for (const std::string& name : choice.wait) {
      cleared.notes.push_back(
          fmt::format("{} stays: it must be drained and is not yet.", shown(name)));
    }
    return {};
  }
}

/// Returns true when the link's target is one of the removed sets.
bool is_of_removed(const std::string& target, const std::set<std::string>& removed) {
  // Earlier versions wrote the timestep in the link without its zeros.
  const auto old_form = parse_set_name(target);
  return removed.contains(target) || std::ranges::any_of(removed, [&](const std::string& name) {
           const auto set = parse_set_name(name);
           return set && old_form && set->application == old_form->application &&
                  set->timestep == old_form->timestep;
         });
}

/// Removes a drain folder's link if its set has been removed.
void drop_link(const DrainFolder& folder, const std::set<std::string>& removed) {
  const std::string target = folder.link_target(kLatest).value_or("");
  if (is_of_removed(target, removed)) ::unlinkat(folder.get(), kLatest, 0);
}

/// Returns the settings in force for a folder. `above`: the rules in force by path, of all folders
/// that the walk has passed.
Outcome<Place> place_of(client::Filesystem& filesystem, const std::string& path, FileId folder,
                        std::map<std::string, client::RulesInForce>& above) {
  Place place{path, folder, {}, {}};
  const auto policy = filesystem.policy(folder);
  if (!policy) return failed(path, policy.error());
  place.policy = policy->effective;
  if (!path.empty()) place.rules = above[fs::path(path).parent_path().string()];
  const auto own = client::own_rules(filesystem, folder);
  if (!own) return failed(path, own.error());
  for (const auto& [key, rule] : *own) place.rules[key] = rule;
  above[path] = place.rules;
  return place;
}

}  // namespace

Outcome<Cleared> clear_sets(const PoolRecord& pool) {
  auto filesystem = connect(pool);
  if (!filesystem) return problem(filesystem.error());
  auto root = (*filesystem)->attributes(kRootFile);
  if (!root) return failed("/", root.error());
  Cleared cleared;
  cleared.drain_directory = (*filesystem)->config().drain_directory;
  Outcome<void> done;
  std::map<std::string, client::RulesInForce> rules;
  auto walked =
      walk(**filesystem, "", *root, [&](const std::string& path, const Attributes& attributes) {
        if (attributes.type != FileType::kDirectory) return true;
        const auto place = place_of(**filesystem, path, attributes.id, rules);
        if (!place) {
          done = problem(place.error());
        } else if (place->policy.get(PolicyKey::kEnd) !=
                   static_cast<std::uint64_t>(EndOfJob::kKeep)) {
          done = clear_folder(**filesystem, *place, cleared);
        }
        return done.has_value();
      });
  if (!walked) return problem(walked.error());
  if (!done) return problem(done.error());
  if (cleared.removed.empty()) return cleared;  // no folder has this policy
  std::size_t images = 0;
  for (const auto& [folder, names] : cleared.removed) images += names.size();
  cleared.notes.push_back(
      fmt::format("{} images of the job that has ended well were removed.", images));
  return cleared;
}

Outcome<void> forget_removed(const Cleared& cleared) {
  if (is_object_store(cleared.drain_directory)) {
    for (const auto& [folder, sets] : cleared.sets) {
      const auto is_removed = [&sets = sets](const auto& target) {
        return is_of_removed(target, sets);
      };
      auto dropped = drop_link_object(cleared.drain_directory, folder, is_removed);
      if (!dropped) return dropped;
    }
    return {};
  }
  for (const auto& [folder, names] : cleared.removed) {
    const std::string path = (fs::path(cleared.drain_directory) / folder).string();
    const auto root = DrainDirectory(cleared.drain_directory).open();
    if (!root) return problem("{}", root.error().text);
    const auto there = root->folder(folder);
    if (!there && there.error().error.os_errno == ENOENT) continue;
    if (!there) return problem("{}", there.error().text);
    if (auto done = forget_in_manifest(*there, path, names); !done) return done;
    const auto sets = cleared.sets.find(folder);
    if (sets != cleared.sets.end()) drop_link(*there, sets->second);
  }
  return {};
}

}  // namespace stdchk::tools
