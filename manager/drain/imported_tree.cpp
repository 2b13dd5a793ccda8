#include "manager/drain/imported_tree.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/folder_settings.h"
#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kSetsTogether = 4096;  // in one command

/// Bytes that are nowhere in memory, as chunks without names: up to `end`, with no checksum.
void add_unknown(ChunkMap& map, std::uint64_t& at, std::uint64_t end) {
  while (at < end) {
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(limits::kChunkBytesMax, end - at));
    map.slices.push_back({at, length, 0, static_cast<std::uint32_t>(map.chunks.size())});
    map.chunks.push_back({{}, length, 0, {}});
    at += length;
  }
}

/// Adds the data between `at` and `end`. Sets `at` to `end`.
void add_data(ChunkMap& map, std::uint64_t& at, std::uint64_t end,
              const std::vector<DataRange>& data) {
  const auto is_before = [&](const DataRange& piece) { return piece.end <= at; };
  for (auto piece = std::ranges::partition_point(data, is_before);
       piece != data.end() && piece->begin < end; ++piece) {
    std::uint64_t from = std::max(at, piece->begin);
    add_unknown(map, from, std::min(end, piece->end));
  }
  at = end;
}

/// Returns the words of the text that are settings of the policy.
std::string policy_part(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    if (word.empty() || is_set_rule(word.substr(0, word.find('=')))) continue;
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

}  // namespace

ChunkMap map_of(std::uint64_t size, const std::vector<DrainedRange>& ranges,
                const std::vector<DataRange>& data) {
  ChunkMap map;
  std::uint64_t at = 0;
  for (const DrainedRange& range : ranges) {
    add_data(map, at, range.offset, data);
    map.slices.push_back({at, range.length, 0, static_cast<std::uint32_t>(map.chunks.size())});
    map.chunks.push_back({{}, range.length, range.crc, {}});
    at += range.length;
  }
  add_data(map, at, size, data);
  return map;
}

FileId ImportedTree::add(RestoreFile file) {
  file.in_drain = true;
  file.attributes.id = FileId{next_id_++};
  found_.push_back(std::move(file));
  return found_.back().attributes.id;
}

void ImportedTree::emit(const std::function<void(Command)>& emit) {
  std::vector<RestoreFile*> by_time;
  for (RestoreFile& file : found_) {
    if (file.attributes.type == FileType::kRegular) by_time.push_back(&file);
  }
  std::ranges::stable_sort(by_time, {},
                           [](const RestoreFile* file) { return file->attributes.mtime_ns; });
  std::uint64_t sequence = 0;
  for (RestoreFile* file : by_time) file->sequence = ++sequence;
  const std::vector<BeginGeneration> generations = generations_after(sequence);
  for (RestoreFile& file : found_) emit(std::move(file));
  found_.clear();
  for (RestoreLink& link : links_) emit(std::move(link));
  links_.clear();
  // Before the generations: a policy may change which files make a set.
  for (Command& command : commands_) emit(std::move(command));
  for (const BeginGeneration& one : generations) emit(one);
}

/// Returns how names of images in the folder are read; null where sets are directories. Uses the
/// rules that the earlier pool has left, as SetNames does with those of this pool.
const SetNaming* ImportedTree::naming(FileId folder) const {
  static const SetNaming by_default;
  const SetNaming* found = nullptr;
  std::optional<bool> by_directory;
  for (FileId at = folder; at; at = found_[at.value - kFirstId].parent) {
    if (const auto own = rules_.find(at); own != rules_.end()) {
      if (found == nullptr && own->second.series) found = &*own->second.series;
      if (!by_directory) by_directory = own->second.by_directory;
    }
    if (at == kRootFile) break;
  }
  if (by_directory == true) return nullptr;
  return found == nullptr ? &by_default : found;
}

/// Adds the file name to its set. `has_content`: a name without content is no image of a set.
void ImportedTree::count_image(FileId folder, const std::string& name, bool has_content,
                               Applications& images) const {
  const SetNaming* const names = naming(folder);
  const auto image = names == nullptr ? std::nullopt : names->parse(name);
  if (!image) return;
  Left& set = images[{folder, image->application}][image->timestep];
  set.images += has_content && !image->is_word ? 1 : 0;
  const auto link = links_to_sets_.find(folder);
  if (link == links_to_sets_.end()) return;
  // Earlier versions wrote the timestep in the link without its zeros.
  const auto linked = parse_set_name(link->second);
  set.is_linked |= link->second == names->set_of(name) ||
                   (*names == SetNaming() && linked && linked->application == image->application &&
                    linked->timestep == image->timestep);
}

/// Returns the images that an earlier pool has left.
ImportedTree::Applications ImportedTree::images_left() {
  for (const RestoreFile& file : found_) {
    if (file.attributes.type == FileType::kSymlink && file.name == kLatestName) {
      links_to_sets_.emplace(file.parent, file.target);
    }
  }
  Applications images;
  for (const RestoreFile& file : found_) {
    if (file.sequence == 0) continue;
    count_image(file.parent, file.name, file.attributes.size_bytes > 0, images);
  }
  for (const RestoreLink& link : links_) count_image(link.parent, link.name, true, images);
  return images;
}

/// Returns the generations that begin with this pool: images written to this pool complete no set
/// that an earlier pool has drained in part. The set that the earlier pool's link names counts as
/// whole, whatever this pool's policy says. Earlier images of all other sets do not count: their
/// wanted number is unknown, and they may be from two generations.
std::vector<BeginGeneration> ImportedTree::generations_after(std::uint64_t sequence) {
  std::vector<BeginGeneration> out;
  for (const auto& [application, timesteps] : images_left()) {
    const auto& [folder, name] = application;
    for (const auto& [timestep, left] : timesteps) {
      if (out.empty() || out.back().directory != folder || out.back().application != name ||
          out.back().sets.size() == kSetsTogether) {
        out.push_back({folder, name, 0, sequence + 1, {}});
      }
      if (left.is_linked && left.images > 0) {
        out.back().sets.push_back({timestep, 0, 0, left.images});
      } else {
        out.back().sets.push_back({timestep, sequence, sequence + 1, 0});
      }
    }
  }
  return out;
}

void ImportedTree::use_policy(const Outcome<std::string>& text, const std::string& path,
                              FileId directory) {
  const auto settings =
      text ? parse_folder_settings(*text) : Outcome<FolderSettings>(tl::unexpect, text.error());
  if (!settings) {
    log::warning("the policy of {} is not used: {}", path, settings.error().text);
    return;
  }
  OwnRules& own = rules_[directory];
  for (const auto& [key, value] : settings->rules) {
    if (key == "set") own.by_directory = value == "directory";
    if (key == "series") own.series.emplace(value);
  }
  Xattrs rules;
  const auto add = [&](std::string_view key, const std::string& value) {
    rules.emplace_back(std::string(kXattrRule) + std::string(key), value);
  };
  for (const auto& [key, value] : settings->rules) add(key, value);
  if (!settings->policy.settings.empty()) add(kRulePolicy, policy_part(*text));
  if (directory != kRootFile) {
    RestoreFile& restored = found_[directory.value - kFirstId];
    restored.policy = settings->policy;
    restored.xattrs = std::move(rules);
    return;
  }
  // Nothing restores the root of a new pool.
  commands_.emplace_back(SetPolicy{directory, settings->policy, 0, {}});
  for (auto& [name, value] : rules) {
    ChangeXattr command;
    command.change.file = directory;
    command.change.name = std::move(name);
    command.change.value = std::move(value);
    commands_.emplace_back(std::move(command));
  }
}

}  // namespace stdchk::manager
