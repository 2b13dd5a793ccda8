// Sets of files: names by pattern, and directories.
#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/drain_manifest.h"
#include "core/policy/name_patterns.h"
#include "manager/state/state.h"

namespace stdchk::manager {
namespace {

const SetNaming& default_naming() {
  static const SetNaming naming;
  return naming;
}

/// Returns the value of the folder's own rule; nothing without a valid one.
std::optional<std::string> rule_of(const File& folder, std::string_view key) {
  const auto found = folder.xattrs.find(std::string(kXattrRule) + std::string(key));
  // A user may have set the attribute where no stdchk looked at its value.
  if (found == folder.xattrs.end() || !rule_problem(key, found->second).empty())
    return std::nullopt;
  return found->second;
}

}  // namespace

const SetNaming* State::naming(const File& folder) const {
  const SetNaming* found = nullptr;
  std::optional<bool> by_directory;
  for (const File* at = &folder; at != nullptr; at = file(at->parent)) {
    if (at->rules) {
      if (found == nullptr && at->rules->series) found = &*at->rules->series;
      if (!by_directory) by_directory = at->rules->by_directory;
    }
    if (at->id == kRootFile || (found != nullptr && by_directory)) break;
  }
  if (by_directory == true) return nullptr;
  return found == nullptr ? &default_naming() : found;
}

SetRules State::set_rules(const File& folder) const {
  OwnRules all;
  const auto take = [](auto& to, const auto& from) {
    if (!to) to = from;
  };
  for (const File* at = &folder; at != nullptr; at = file(at->parent)) {
    if (at->rules) {
      take(all.by_directory, at->rules->by_directory);
      take(all.set_names, at->rules->set_names);
      take(all.marker, at->rules->marker);
      take(all.pointer, at->rules->pointer);
    }
    if (at->id == kRootFile) break;
  }
  return {all.by_directory.value_or(false), all.set_names.value_or(""), all.marker.value_or(""),
          all.pointer.value_or("")};
}

std::optional<PatternName> State::image_name(FileId folder, std::string_view name) const {
  const File* const at = file(folder);
  const SetNaming* const names = at == nullptr ? nullptr : naming(*at);
  if (names == nullptr) return std::nullopt;
  return names->parse(name);
}

/// Returns the parts of the name, if the file is an image with a committed name.
std::optional<PatternName> State::image_of(const File& file) const {
  if (!file.parent || file.type != FileType::kRegular) return std::nullopt;
  return image_name(file.parent, file.name);
}

FileId State::set_directory(FileId id) const {
  if (directory_set_folders_ == 0) return {};
  std::vector<const File*> chain;  // from `id` to the root
  for (const File* at = file(id); at != nullptr; at = file(at->parent)) {
    if (at->type == FileType::kDirectory) chain.push_back(at);
    if (at->id == kRootFile) break;
  }
  if (chain.empty() || chain.back()->id != kRootFile) return {};
  bool by_directory = false;
  std::string_view patterns;
  for (std::size_t i = chain.size(); i-- > 1;) {
    const OwnRules* const own = chain[i]->rules.get();
    if (own != nullptr) {
      by_directory = own->by_directory.value_or(by_directory);
      if (own->set_names) patterns = *own->set_names;
    }
    if (!by_directory) continue;
    // Without patterns, the subdirectories of the folder that has the rule are sets.
    const bool is_own = own != nullptr && own->by_directory == true;
    const File& below = *chain[i - 1];
    if (patterns.empty() ? is_own : NamePatterns(patterns).match(below.name)) return below.id;
  }
  return {};
}

std::optional<std::pair<FileId, std::string>> State::set_of(FileId folder,
                                                            std::string_view name) const {
  const File* const at = file(folder);
  if (at == nullptr) return std::nullopt;
  if (const SetNaming* const names = naming(*at)) {
    if (names->parse(name)) return std::pair(folder, names->set_of(name));
  }
  FileId directory = set_directory(folder);
  if (!directory) {
    // `name` may be the directory itself.
    const auto child = at->children.find(name);
    if (child != at->children.end()) directory = set_directory(child->second);
  }
  if (!directory) return std::nullopt;
  const File& set = *file(directory);
  return std::pair(set.parent, set.name);
}

/// Reads the folder's own rules in its extended attributes.
void State::read_rules(File& folder) {
  if (folder.rules && folder.rules->by_directory == true) --directory_set_folders_;
  folder.rules = nullptr;
  OwnRules own;
  if (const auto kind = rule_of(folder, "set")) own.by_directory = *kind == "directory";
  own.set_names = rule_of(folder, "set-names");
  own.marker = rule_of(folder, "marker");
  own.pointer = rule_of(folder, "pointer");
  if (const auto series = rule_of(folder, "series")) own.series.emplace(*series);
  const bool any =
      own.by_directory || own.set_names || own.marker || own.pointer || own.series.has_value();
  if (!any) return;
  if (own.by_directory == true) ++directory_set_folders_;
  folder.rules = std::make_shared<const OwnRules>(std::move(own));
}

void State::change_rules(File& folder) {
  const SetNaming* const naming_before = naming(folder);
  const bool had_none = naming_before == nullptr;
  const SetNaming read_before = had_none ? SetNaming() : *naming_before;
  read_rules(folder);
  const SetNaming* const now = naming(folder);
  const bool same = had_none ? now == nullptr : now != nullptr && *now == read_before;
  if (!same) read_names_again(folder);
  mirror_rules(folder);
}

/// Repeats the folder's rules and policy in the drain directory, where a later pool finds them: a
/// symbolic link whose target is their text. Making a link is atomic, and no reader sees half of
/// it.
void State::mirror_rules(const File& folder) {
  // Without a drain directory no change was ever repeated there.
  if (!folder.in_drain && (folder.id != kRootFile || mirror_sequence_ == 0)) return;
  std::string text;
  for (const auto& [name, value] : folder.xattrs) {
    if (!name.starts_with(kXattrRule)) continue;
    const std::string_view key = std::string_view(name).substr(kXattrRule.size());
    if (!rule_problem(key, value).empty()) continue;
    if (!text.empty()) text += ' ';
    text += key == kRulePolicy ? value : std::string(key) + "=" + value;
  }
  const std::string above = path(folder);
  const std::string at = above.empty() ? kPolicyLinkName : above + "/" + kPolicyLinkName;
  if (text.size() > limits::kSymlinkBytesMax) {
    log::warning("the policy of {} is too long for the drain directory", above);
    return;
  }
  const auto kind = text.empty() ? msg::MirrorKind::kUnlink : msg::MirrorKind::kSymlink;
  mirror(kind, folder, at, std::move(text));
}

/// Called when a rule has changed how names of images in the folder and below are read. Forgets the
/// generations of the sets there.
void State::read_names_again(const File& folder) {
  std::vector<const File*> todo{&folder};
  while (!todo.empty()) {
    const File& at = *todo.back();
    todo.pop_back();
    set_generations_.forget(at.id);
    for (const auto& [name, id] : at.children) {
      const File& child = *file(id);
      if (child.type == FileType::kDirectory) todo.push_back(&child);
      // `name` may be a further hard link of the file.
      if (child.type != FileType::kRegular) continue;
      if (const auto image = image_name(at.id, name)) {
        set_generations_.add(at.id, *image, child.newest.written);
      }
    }
  }
}

/// Called when a directory has moved from a folder whose names were read by `before`.
void State::read_moved_names(const File& directory, const SetNaming* before) {
  const SetNaming* const now = naming(*file(directory.parent));
  const bool same = now == before || (now != nullptr && before != nullptr && *now == *before);
  if (!same) read_names_again(directory);
}

}  // namespace stdchk::manager
