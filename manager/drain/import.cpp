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
#include "core/objects/object_place.h"
#include "manager/drain/imported_tree.h"
#include "manager/drain/manifest_reader.h"
#include "manager/drain/object_import.h"

namespace stdchk::manager {
namespace {

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

  void emit(const std::function<void(Command)>& emit) { tree_.emit(emit); }

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

  std::uint64_t count() const { return tree_.count(); }
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
      if (name == kPolicyLinkName) {
        tree_.use_policy(read_policy_text(*folder), below(directory_.path(), path), directory);
      }
      if (is_pool_file(name)) continue;
      add({*folder, path, name, directory}, manifest, folders);
    }
    return {};
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
        tree_.add_link({first->second, entry.parent, entry.name, true, false});
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
    if (S_ISDIR(info->st_mode)) {
      to.type = FileType::kDirectory;
      folders.emplace_back(entry.name, tree_.next_id());
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
    const FileId id = tree_.add(std::move(file));
    if (!S_ISDIR(info->st_mode) && info->st_nlink > 1) {
      linked_.emplace(std::pair(info->st_dev, info->st_ino), id);
    }
  }

  const DrainDirectory& directory_;
  const DrainFolder root_;
  ManifestReader manifests_;
  ImportedTree tree_;
  /// Files with several names, by device and inode.
  std::map<std::pair<dev_t, ino_t>, FileId> linked_;
};

}  // namespace

Status import_drained(const std::string& directory, const std::function<void(Command)>& emit,
                      Duration manifests_longest) {
  if (is_object_store(directory)) return import_objects(directory, emit);
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
