#include "manager/drain/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/data_ranges.h"
#include "core/files/drain_directory.h"
#include "core/files/drain_manifest.h"
#include "core/policy/folder_settings.h"
#include "core/policy/image_name.h"
#include "core/policy/set_naming.h"
#include "core/policy/set_rules.h"
#include "manager/drain/manifest_reader.h"
#include "manager/state/file.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kFirstId = 2;
constexpr std::size_t kSetsTogether = 4096;  // in one command

/// A file with more pieces counts as data from there on, so that its map stays small.
constexpr std::size_t kPiecesMax = 4096;

/// The ranges of data of a file, up to `size`. Asks the file system only where it keeps fewer bytes
/// than the file has.
std::vector<DataRange> data_of(const DrainFolder& folder, const std::string& name,
                               const struct stat& there) {
  constexpr std::uint64_t kBlockBytes = 512;  // stat(2), st_blocks
  const auto size = static_cast<std::uint64_t>(there.st_size);
  if (static_cast<std::uint64_t>(there.st_blocks) * kBlockBytes >= size) return {{0, size}};
  ExpectedFile expected;
  expected.inode = there.st_ino;
  const auto file = folder.open(name, Access::kRead, expected);
  if (!file) return {{0, size}};
  std::vector<DataRange> pieces;
  while (const auto next =
             next_data(file->file.get(), pieces.empty() ? 0 : pieces.back().end, size)) {
    pieces.push_back(*next);
    if (pieces.size() == kPiecesMax) pieces.back().end = size;
  }
  return pieces;
}

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

/// Returns the map of the content: `ranges`, in order, have known checksums. The rest is a hole,
/// but for the ranges in `data`.
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

/// Returns the known checksums of a drained file. Returns none when the manifest is about a file of
/// another size or time.
std::vector<DrainedRange> known_checksums_of(const ManifestEntries& manifest,
                                             const std::string& name, const struct stat& there) {
  const auto entry = manifest.find(name);
  if (entry == manifest.end() ||
      entry->second.size_bytes != static_cast<std::uint64_t>(there.st_size) ||
      !equals_stored_time(entry->second.mtime_ns, there.st_mtim)) {
    return {};
  }
  return entry->second.ranges;
}

void remove_temporaries(const DrainFolder& folder) {
  const auto names = folder.names();
  if (!names) return;
  for (const std::string& name : *names) {
    if (::unlinkat(folder.get(), name.c_str(), 0) != 0 && errno == EISDIR) {
      ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR);
    }
  }
}

std::string below(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

class Import {
 public:
  Import(const DrainDirectory& directory, DrainFolder root, ManifestReader manifests)
      : directory_(directory), root_(std::move(root)), manifests_(manifests) {}

  /// Emits the files in the order of their names. Their sequence numbers follow their times, so the
  /// file written last is the newest.
  void emit(const std::function<void(Command)>& emit) {
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

  /// Shows what is in the folder at `path`; "" is the drain directory itself. A folder that cannot
  /// be read is shown without what is in it: its owner must not keep others' files from a pool.
  Status run(const std::string& path, FileId directory) {
    std::vector<std::pair<std::string, FileId>> folders;
    STDCHK_TRY(show_entries(path, directory, folders));
    for (const auto& [name, id] : folders) {
      if (const Status shown = run(below(path, name), id); !shown) {
        log::warning("{}/{} cannot be read, so nothing in it is shown: {}", directory_.path(),
                     below(path, name), describe(shown.error()));
      }
    }
    return {};
  }

  std::uint64_t count() const { return next_id_ - kFirstId; }
  std::uint64_t unread_manifests() const { return manifests_.unread(); }

 private:
  /// Holds only one folder open, however deep the tree is.
  Status show_entries(const std::string& path, FileId directory,
                      std::vector<std::pair<std::string, FileId>>& folders) {
    const auto folder = root_.folder(path);
    if (!folder) return fail(Code::kSystem, "import.open", folder.error().error.os_errno);
    const auto names = folder->names();
    if (!names) return fail(Code::kSystem, "import.list", names.error().error.os_errno);
    const ManifestEntries manifest = manifests_.read(*folder, below(directory_.path(), path));
    for (const std::string& name : *names) {
      if (directory == kRootFile && name == msg::kTemporaryFolder) {
        if (const auto temporary = folder->folder(name)) remove_temporaries(*temporary);
        continue;
      }
      if (name == kPolicyLinkName) read_policy(*folder, below(directory_.path(), path), directory);
      if (is_pool_file(name)) continue;
      add({*folder, path, name, directory}, manifest, folders);
    }
    return {};
  }

  /// Returns how names of images in the folder are read; null where sets are directories. Uses the
  /// rules that the earlier pool has left, as SetNames does with those of this pool.
  const SetNaming* naming(FileId folder) const {
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

  /// The images that an earlier pool has left of a set.
  struct Left {
    std::uint64_t images = 0;
    bool is_linked = false;  ///< the link of the folder names the set
  };
  /// An application of a folder, and its sets by timestep.
  using Application = std::pair<FileId, std::string>;
  using Applications = std::map<Application, std::map<std::uint64_t, Left>>;

  /// Adds the file name to its set. `has_content`: a name without content is no image of a set.
  void count_image(FileId folder, const std::string& name, bool has_content,
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
    set.is_linked |=
        link->second == names->set_of(name) ||
        (*names == SetNaming() && linked && linked->application == image->application &&
         linked->timestep == image->timestep);
  }

  /// Returns the images that an earlier pool has left.
  Applications images_left() {
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
  std::vector<BeginGeneration> generations_after(std::uint64_t sequence) {
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

  /// Reads the policy and the rules that an earlier pool has left in the folder.
  void read_policy(const DrainFolder& folder, const std::string& path, FileId directory) {
    const auto text = read_policy_text(folder);
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

  /// Returns the words of the text that are settings of the policy.
  static std::string policy_part(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(text.size(), end + 1));
      if (word.empty() || is_set_rule(word.substr(0, word.find('=')))) continue;
      out += (out.empty() ? "" : " ") + std::string(word);
    }
    return out;
  }

  struct Entry {
    const DrainFolder& folder;
    const std::string& path;  ///< of the folder
    const std::string& name;
    FileId parent;
  };
  void add(const Entry& entry, const ManifestEntries& manifest,
           std::vector<std::pair<std::string, FileId>>& folders) {
    const std::string path = below(entry.path, entry.name);
    const auto info = entry.folder.status(entry.name);
    if (directory_.path().size() + 1 + path.size() > limits::kPathBytesMax || !info) {
      log::warning("{} in the drain directory cannot be shown", path);
      return;
    }
    if (!S_ISDIR(info->st_mode) && info->st_nlink > 1) {
      const auto first = linked_.find({info->st_dev, info->st_ino});
      if (first != linked_.end()) {
        links_.push_back({first->second, entry.parent, entry.name, true, false});
        return;
      }
    }
    RestoreFile file;
    Attributes& to = file.attributes;
    to.mode = info->st_mode & 07777;
    to.uid = info->st_uid;
    to.gid = info->st_gid;
    to.atime_ns = to_ns(info->st_atim);
    to.mtime_ns = to_ns(info->st_mtim);
    to.ctime_ns = to_ns(info->st_ctim);
    file.parent = entry.parent;
    file.name = entry.name;
    file.in_drain = true;
    if (S_ISDIR(info->st_mode)) {
      to.type = FileType::kDirectory;
      folders.emplace_back(entry.name, FileId{next_id_});
    } else if (S_ISLNK(info->st_mode)) {
      auto target = entry.folder.link_target(entry.name);
      if (!target || target->size() > limits::kSymlinkBytesMax) return;
      to.type = FileType::kSymlink;
      file.target = std::move(*target);
    } else if (S_ISREG(info->st_mode)) {
      to.type = FileType::kRegular;
      to.size_bytes = static_cast<std::uint64_t>(info->st_size);
      to.version = 1;
      file.map = map_of(to.size_bytes, known_checksums_of(manifest, entry.name, *info),
                        data_of(entry.folder, entry.name, *info));
      file.drained = file.evicted = true;
    } else if (S_ISFIFO(info->st_mode) || S_ISSOCK(info->st_mode)) {
      to.type = S_ISFIFO(info->st_mode) ? FileType::kFifo : FileType::kSocket;
    } else {
      log::warning("{} in the drain directory is {}, and is not shown", path,
                   kind_of(info->st_mode));
      return;
    }
    to.id = FileId{next_id_++};
    if (!S_ISDIR(info->st_mode) && info->st_nlink > 1) {
      linked_.emplace(std::pair(info->st_dev, info->st_ino), to.id);
    }
    found_.push_back(std::move(file));
  }

  const DrainDirectory& directory_;
  const DrainFolder root_;
  ManifestReader manifests_;
  std::uint64_t next_id_ = kFirstId;
  std::vector<RestoreFile> found_;
  std::vector<Command> commands_;     ///< policy and rules of the root
  std::map<FileId, OwnRules> rules_;  ///< how folders read the names of images; no other rules
  std::map<FileId, std::string> links_to_sets_;  ///< targets of the links `latest`, by folder
  /// Files with several names, by device and inode, and their further names.
  std::map<std::pair<dev_t, ino_t>, FileId> linked_;
  std::vector<RestoreLink> links_;
};

}  // namespace

Status import_drained(const std::string& directory, const std::function<void(Command)>& emit,
                      Duration manifests_longest) {
  const DrainDirectory drain(directory);
  auto root = drain.open();
  // Made by the first benefactor that drains something.
  if (!root && root.error().error.os_errno == ENOENT) return {};
  if (!root) {
    log::error("{}", root.error().text);
    return fail(Code::kSystem, "import.open", root.error().error.os_errno);
  }
  Import import(drain, std::move(*root),
                ManifestReader(ManifestReader::Clock::now() + manifests_longest));
  STDCHK_TRY(import.run("", kRootFile));
  import.emit(emit);
  if (import.count() > 0) {
    log::info("{} files and directories were found in {}", import.count(), directory);
  }
  if (import.unread_manifests() > 0) {
    log::warning(
        "{} manifests in {} are too long to be read at the start: not all that is read of files "
        "there is checked",
        import.unread_manifests(), directory);
  }
  return {};
}

}  // namespace stdchk::manager
