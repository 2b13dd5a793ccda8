#include "manager/import.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/drain_manifest.h"
#include "core/file_time.h"
#include "core/image_name.h"
#include "core/limits.h"
#include "core/log.h"
#include "manager/manifest_reader.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kFirstId = 2;
constexpr std::size_t kSetsTogether = 4096;  // in one command

struct DirCloser {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

Result<std::vector<std::string>> names_in(const std::string& path) {
  const std::unique_ptr<DIR, DirCloser> dir(::opendir(path.c_str()));
  if (!dir) return fail_errno("import.opendir");
  std::vector<std::string> out;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Adds the bytes up to `end` as chunks without names, checksums and copies.
void add_unknown(ChunkMap& map, std::uint64_t& at, std::uint64_t end) {
  while (at < end) {
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(limits::kChunkBytesMax, end - at));
    map.slices.push_back({at, length, 0, static_cast<std::uint32_t>(map.chunks.size())});
    map.chunks.push_back({{}, length, 0, {}});
    at += length;
  }
}

/// Returns the map of the content: `ranges`, in order, have known checksums.
ChunkMap map_of(std::uint64_t size, const std::vector<DrainedRange>& ranges) {
  ChunkMap map;
  std::uint64_t at = 0;
  for (const DrainedRange& range : ranges) {
    add_unknown(map, at, range.offset);
    map.slices.push_back({at, range.length, 0, static_cast<std::uint32_t>(map.chunks.size())});
    map.chunks.push_back({{}, range.length, range.crc, {}});
    at += range.length;
  }
  add_unknown(map, at, size);
  return map;
}

/// Returns the known checksums of a drained file. Returns none when the manifest is about a file of
/// another size or time.
std::vector<DrainedRange> known_of(const ManifestEntries& manifest, const std::string& name,
                                   const struct stat& there) {
  const auto entry = manifest.find(name);
  if (entry == manifest.end() ||
      entry->second.size_bytes != static_cast<std::uint64_t>(there.st_size) ||
      !is_time_of(entry->second.mtime_ns, there.st_mtim)) {
    return {};
  }
  return entry->second.ranges;
}

void remove_temporaries(const std::string& path) {
  const auto names = names_in(path);
  if (!names) return;
  for (const std::string& name : *names) ::unlink((path + "/" + name).c_str());
}

class Import {
 public:
  explicit Import(ManifestReader manifests) : manifests_(manifests) {}

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
    for (const BeginGeneration& one : generations) emit(one);
  }

  Status run(const std::string& path, FileId directory) {
    STDCHK_ASSIGN(const std::vector<std::string> names, names_in(path));
    const ManifestEntries manifest = manifests_.read(path);
    for (const std::string& name : names) {
      if (directory == kRootFile && name == msg::kTemporaryFolder) {
        remove_temporaries(path + "/" + name);
        continue;
      }
      if (is_manifest(name)) continue;  // written by the stdchk command
      STDCHK_TRY(add(path + "/" + name, name, directory, manifest));
    }
    return {};
  }

  std::uint64_t count() const { return next_id_ - kFirstId; }
  std::uint64_t unread_manifests() const { return manifests_.unread(); }

 private:
  /// Ends all generations of earlier pools, so that writes into this pool complete no old
  /// set. The set that the earlier pool's link names stays whole, whatever this pool's policy
  /// says. Images of other old sets do not count: their wanted number is unknown, and they
  /// may be of two generations.
  std::vector<BeginGeneration> generations_after(std::uint64_t sequence) const {
    using Application = std::pair<FileId, std::string>;
    // Number of images of each timestep.
    std::map<Application, std::map<std::uint64_t, std::uint64_t>> images;
    std::map<FileId, ImageName> links;
    for (const RestoreFile& file : found_) {
      if (file.attributes.type == FileType::kSymlink && file.name == kLatestName) {
        if (auto set = parse_set_name(file.target)) links.emplace(file.parent, std::move(*set));
      }
      const auto image = parse_image_name(file.name);
      if (!image || file.sequence == 0) continue;
      std::uint64_t& count = images[{file.parent, image->application}][image->timestep];
      count += file.attributes.size_bytes > 0 ? 1 : 0;
    }
    std::vector<BeginGeneration> out;
    for (const auto& [application, timesteps] : images) {
      const auto& [folder, name] = application;
      const auto link = links.find(folder);
      for (const auto& [timestep, count] : timesteps) {
        if (out.empty() || out.back().directory != folder || out.back().application != name ||
            out.back().sets.size() == kSetsTogether) {
          out.push_back({folder, name, 0, sequence + 1, {}});
        }
        const bool named = link != links.end() && link->second.application == name &&
                           link->second.timestep == timestep;
        if (named && count > 0) {
          out.back().sets.push_back({timestep, 0, 0, count});
        } else {
          out.back().sets.push_back({timestep, sequence, sequence + 1, 0});
        }
      }
    }
    return out;
  }

  Status add(const std::string& path, const std::string& name, FileId parent,
             const ManifestEntries& manifest) {
    struct stat info {};
    if (path.size() > limits::kPathBytesMax || ::lstat(path.c_str(), &info) != 0) {
      log::warning("{} in the drain directory cannot be shown", path);
      return {};
    }
    RestoreFile file;
    Attributes& to = file.attributes;
    to.id = FileId{next_id_++};
    to.mode = info.st_mode & 07777;
    to.uid = info.st_uid;
    to.gid = info.st_gid;
    to.atime_ns = to_ns(info.st_atim);
    to.mtime_ns = to_ns(info.st_mtim);
    to.ctime_ns = to_ns(info.st_ctim);
    file.parent = parent;
    file.name = name;
    file.in_drain = true;
    if (S_ISDIR(info.st_mode)) {
      to.type = FileType::kDirectory;
      const FileId id = to.id;
      found_.push_back(std::move(file));
      return run(path, id);
    }
    if (S_ISLNK(info.st_mode)) {
      to.type = FileType::kSymlink;
      std::string target(limits::kPathBytesMax, '\0');
      const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
      if (length <= 0) return {};
      target.resize(static_cast<std::size_t>(length));
      file.target = std::move(target);
    } else if (S_ISREG(info.st_mode)) {
      to.type = FileType::kRegular;
      to.size_bytes = static_cast<std::uint64_t>(info.st_size);
      to.version = 1;
      file.map = map_of(to.size_bytes, known_of(manifest, name, info));
      file.drained = file.evicted = true;
    } else {
      return {};  // devices and sockets are no checkpoints
    }
    found_.push_back(std::move(file));
    return {};
  }

  ManifestReader manifests_;
  std::uint64_t next_id_ = kFirstId;
  std::vector<RestoreFile> found_;
};

}  // namespace

Status import_drained(const std::string& directory, const std::function<void(Command)>& emit,
                      Duration manifests_longest) {
  // Missing: the first benefactor that drains a file makes the directory.
  if (::access(directory.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  Import import(ManifestReader(ManifestReader::Clock::now() + manifests_longest));
  STDCHK_TRY(import.run(directory, kRootFile));
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
