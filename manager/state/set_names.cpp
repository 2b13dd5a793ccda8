#include "manager/state/set_names.h"

#include <vector>

#include "core/policy/name_patterns.h"

namespace stdchk::manager {
namespace {

const SetNaming& default_naming() {
  static const SetNaming naming;
  return naming;
}

}  // namespace

const SetNaming* SetNames::naming(const File& folder) const {
  const SetNaming* found = nullptr;
  std::optional<bool> by_directory;
  for (const File* at = &folder; at != nullptr; at = files_.file(at->parent)) {
    if (at->as_directory.rules) {
      if (found == nullptr && at->as_directory.rules->series)
        found = &*at->as_directory.rules->series;
      if (!by_directory) by_directory = at->as_directory.rules->by_directory;
    }
    if (at->id == kRootFile || (found != nullptr && by_directory)) break;
  }
  if (by_directory == true) return nullptr;
  return found == nullptr ? &default_naming() : found;
}

SetRules SetNames::set_rules(const File& folder) const {
  OwnRules all;
  const auto take = [](auto& to, const auto& from) {
    if (!to) to = from;
  };
  for (const File* at = &folder; at != nullptr; at = files_.file(at->parent)) {
    if (at->as_directory.rules) {
      take(all.by_directory, at->as_directory.rules->by_directory);
      take(all.set_names, at->as_directory.rules->set_names);
      take(all.marker, at->as_directory.rules->marker);
      take(all.pointer, at->as_directory.rules->pointer);
    }
    if (at->id == kRootFile) break;
  }
  return {all.by_directory.value_or(false), all.set_names.value_or(""), all.marker.value_or(""),
          all.pointer.value_or("")};
}

std::optional<PatternName> SetNames::image_name(FileId folder, std::string_view name) const {
  const File* const at = files_.file(folder);
  const SetNaming* const names = at == nullptr ? nullptr : naming(*at);
  if (names == nullptr) return std::nullopt;
  return names->parse(name);
}

std::optional<PatternName> SetNames::image_of(const File& file) const {
  if (!file.parent || file.type != FileType::kRegular) return std::nullopt;
  return image_name(file.parent, file.name);
}

std::optional<PatternName> SetNames::image_of(const File& file, const Link& link) const {
  if (file.type != FileType::kRegular) return std::nullopt;
  return image_name(link.parent, link.name);
}

FileId SetNames::directory(FileId id) const {
  if (!has_directories_) return {};
  std::vector<const File*> chain;  // from `id` to the root
  for (const File* at = files_.file(id); at != nullptr; at = files_.file(at->parent)) {
    if (at->type == FileType::kDirectory) chain.push_back(at);
    if (at->id == kRootFile) break;
  }
  if (chain.empty() || chain.back()->id != kRootFile) return {};
  bool by_directory = false;
  std::string_view patterns;
  for (std::size_t i = chain.size(); i-- > 1;) {
    const OwnRules* const own = chain[i]->as_directory.rules.get();
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

SetPart SetNames::part(const File& folder, std::string_view name) const {
  if (!has_directories_) return SetPart::kNone;
  const FileId directory = this->directory(folder.id);
  if (directory && directory != folder.id) return SetPart::kNone;
  const SetRules rules = set_rules(folder);
  if (directory) {
    return NamePatterns(rules.marker).match(name) ? SetPart::kMarker : SetPart::kNone;
  }
  const bool is_pointer = rules.by_directory && NamePatterns(rules.pointer).match(name);
  return is_pointer ? SetPart::kPointer : SetPart::kNone;
}

std::optional<std::pair<FileId, std::string>> SetNames::set_of(FileId folder,
                                                               std::string_view name) const {
  const File* const at = files_.file(folder);
  if (at == nullptr) return std::nullopt;
  if (const SetNaming* const names = naming(*at)) {
    if (names->parse(name)) return std::pair(folder, names->set_of(name));
  }
  FileId directory = this->directory(folder);
  if (!directory) {
    // `name` may be the directory itself.
    const auto child = at->as_directory.children.find(name);
    if (child != at->as_directory.children.end()) directory = this->directory(child->second);
  }
  if (!directory) return std::nullopt;
  const File& set = *files_.file(directory);
  return std::pair(set.parent, set.name);
}

}  // namespace stdchk::manager
