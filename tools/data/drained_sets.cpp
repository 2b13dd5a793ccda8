#include "tools/data/drained_sets.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/file_time.h"
#include "core/files/drain_manifest.h"
#include "core/policy/image_name.h"
#include "core/policy/name_patterns.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
constexpr const char* kLatest = "latest";
constexpr std::size_t kPointerBytesMax = 4096;

std::string join(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

std::string folder_part(const std::string& path) { return fs::path(path).parent_path(); }
std::string name_part(const std::string& path) { return fs::path(path).filename(); }

/// Returns the beginning of the file, or the target of the symbolic link.
std::string text_of_pointer(const DrainedSource& root, const std::string& path) {
  if (auto link = root.link(path)) return std::move(link->target);
  const auto file = root.open(path);
  const auto bytes = file ? (*file)->read(0, kPointerBytesMax) : problem(file.error());
  if (!bytes) return {};
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

/// Returns the target of the symbolic link; empty: there is none.
std::string target_of(const DrainedSource& root, const std::string& path) {
  auto link = root.link(path);
  return link ? std::move(link->target) : std::string();
}

}  // namespace

std::string DrainedSets::Rules::text(const char* key) const {
  const auto found = texts.find(key);
  return found == texts.end() ? std::string() : found->second;
}

void DrainedSets::take_settings(const Outcome<std::string>& text, Rules& rules) {
  rules.is_own = false;
  const auto settings =
      text ? parse_folder_settings(*text) : Outcome<FolderSettings>(tl::unexpect, text.error());
  if (!settings) return;
  for (const auto& [key, value] : settings->rules) {
    if (!value.empty()) rules.texts[key] = value;
  }
  if (const auto own = settings->rules.find("set"); own != settings->rules.end()) {
    rules.by_directory = own->second == "directory";
    rules.is_own = rules.by_directory;
  }
  if (const auto images = settings->policy.find(PolicyKey::kImages)) rules.images = *images;
}

DrainedSets::DrainedSets(const DrainedSource& root) : root_(root) {
  Rules rules;
  for (const std::string& text : root_.policies_above()) take_settings(text, rules);
  take_settings(root_.policy_text(""), rules);
  rules_.emplace("", std::move(rules));
}

const DrainedSets::Rules& DrainedSets::rules_of(const std::string& folder) {
  const auto known = rules_.find(folder);
  if (known != rules_.end()) return known->second;
  Rules rules = rules_of(folder_part(folder));
  rules.is_own = false;
  take_settings(root_.policy_text(folder), rules);
  return rules_.emplace(folder, std::move(rules)).first->second;
}

bool DrainedSets::is_set(const std::string& folder, const std::string& name) {
  const Rules& rules = rules_of(folder);
  if (!rules.by_directory) return false;
  // Without patterns, the subdirectories of the folder that has the rule are sets.
  const std::string patterns = rules.text("set-names");
  return patterns.empty() ? rules.is_own : NamePatterns(patterns).match(name);
}

std::optional<std::pair<std::string, std::string>> DrainedSets::directory_of(
    const std::string& file) {
  std::string folder;
  for (const fs::path& part : fs::path(file).parent_path()) {
    if (is_set(folder, part.string())) return std::pair(folder, part.string());
    folder = join(folder, part.string());
  }
  return std::nullopt;
}

DrainedSets::Folder& DrainedSets::folder_of(const std::string& path) {
  const auto [at, is_new] = folders_.try_emplace(path);
  const Rules& rules = rules_of(path);
  if (is_new && !rules.by_directory) {
    const std::string series = rules.text("series");
    at->second.index.emplace(series.empty() ? SetNaming() : SetNaming(series));
  }
  return at->second;
}

void DrainedSets::add(const std::string& file) {
  const auto status = root_.status(file);
  const std::int64_t time_ns = status ? to_ns(status->st_mtim) : 0;
  const std::string parent = folder_part(file);
  const std::string name = name_part(file);
  if (const auto set = directory_of(file)) {
    Directory& directory = folder_of(set->first).directories[set->second];
    const bool is_marker = parent == join(set->first, set->second) &&
                           NamePatterns(rules_of(parent).text("marker")).match(name);
    directory.has_marker |= is_marker;
    directory.members += is_marker ? 0 : 1;
    directory.newest_ns = std::max(directory.newest_ns, time_ns);
    return;
  }
  Folder& folder = folder_of(parent);
  if (folder.index) {
    folder.index->add(name);
  } else if (NamePatterns(rules_of(parent).text("pointer")).match(name)) {
    folder.pointers.push_back(name);
    folder.pointer_ns = std::max(folder.pointer_ns, time_ns);
  }
}

void DrainedSets::add_link(const std::string& link) {
  const std::string parent = folder_part(link);
  const std::string name = name_part(link);
  if (directory_of(link)) return;
  const bool is_pointer =
      !folder_of(parent).index && NamePatterns(rules_of(parent).text("pointer")).match(name);
  if (is_pointer) add(link);
}

bool DrainedSets::is_of_pool(const std::string& link) {
  if (name_part(link) != kLatest || directory_of(link)) return false;
  const Folder& folder = folder_of(folder_part(link));
  const std::string target = target_of(root_, link);
  if (folder.index) return folder.index->find(target) || parse_set_name(target);
  return folder.directories.contains(target) &&
         std::ranges::find(folder.pointers, kLatest) == folder.pointers.end();
}

DrainedPlace DrainedSets::place_of(const std::string& file) {
  const std::string parent = folder_part(file);
  const std::string name = name_part(file);
  DrainedPlace place{parent, {}, {}, 0, LoadPhase::kMember};
  if (const auto set = directory_of(file)) {
    place.folder = place.series = set->first;
    place.series += '/';
    place.set = set->second;
    // A directory may have nothing but links.
    const auto& directories = folder_of(set->first).directories;
    const auto directory = directories.find(set->second);
    if (directory != directories.end()) {
      place.order = static_cast<std::uint64_t>(directory->second.newest_ns);
    }
    const bool is_marker = parent == join(set->first, set->second) &&
                           NamePatterns(rules_of(parent).text("marker")).match(name);
    if (is_marker) place.phase = LoadPhase::kMarker;
    return place;
  }
  Folder& folder = folder_of(parent);
  if (!folder.index) {
    if (std::ranges::find(folder.pointers, name) != folder.pointers.end()) {
      place.phase = LoadPhase::kPointer;
    }
  } else if (const auto key = folder.index->key_of(name)) {
    place.series = join(parent, key->first);
    place.order = key->second;
    place.set = folder.index->name_of(*key);
  }
  return place;
}

bool DrainedSets::is_of(const std::string& file, const std::string& set) {
  const DrainedPlace place = place_of(file);
  if (place.set.empty()) return false;
  const Folder& folder = folder_of(place.folder);
  if (!folder.index) return place.set == set;
  const auto wanted = folder.index->find(set);
  return wanted && wanted == folder.index->key_of(name_part(file));
}

/// Finds the newest whole directory, and chooses it and those that pointers name. The drain writes a
/// marker last, so a directory with its marker is whole. Without that rule, `images` members are
/// enough, or a pointer that is newer than the members (decision 56). The target of `latest` always
/// counts as whole.
void DrainedSets::judge_directories(const std::string& path, Folder& folder) {
  const Rules& rules = rules_of(path);
  const bool wants_marker = !rules.text("marker").empty();
  const std::string linked = target_of(root_, join(path, kLatest));
  std::int64_t newest_ns = -1;
  for (const auto& [name, directory] : folder.directories) {
    bool is_whole = directory.members >= rules.images;
    if (wants_marker) {
      is_whole = is_whole && directory.has_marker;
    } else if (rules.images == 0) {
      is_whole = directory.newest_ns < folder.pointer_ns;
    }
    if ((!is_whole && name != linked) || directory.newest_ns <= newest_ns) continue;
    newest_ns = directory.newest_ns;
    folder.newest = name;
  }
  if (!folder.newest.empty()) folder.chosen.insert(folder.newest);
  for (const std::string& pointer : folder.pointers) {
    const std::string text = text_of_pointer(root_, join(path, pointer));
    for (const auto& [name, directory] : folder.directories) {
      if (is_named_by(text, name)) folder.chosen.insert(name);
    }
  }
}

void DrainedSets::judge(const std::string& path, Folder& folder) {
  if (std::exchange(folder.is_judged, true)) return;
  if (!folder.index) return judge_directories(path, folder);
  const std::string linked = target_of(root_, join(path, kLatest));
  if (const auto key = folder.index->find(linked)) {
    folder.newest = folder.index->name_of(*key);
    folder.chosen.insert(folder.newest);
  } else if (parse_set_name(linked)) {
    folder.chosen.insert(linked);  // its files are gone
  }
}

const std::set<std::string>& DrainedSets::chosen(const std::string& path) {
  Folder& folder = folder_of(path);
  judge(path, folder);
  return folder.chosen;
}

const std::string& DrainedSets::newest(const std::string& path) {
  Folder& folder = folder_of(path);
  judge(path, folder);
  return folder.newest;
}

}  // namespace stdchk::tools
