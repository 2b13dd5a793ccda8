#include "manager/drain/object_import.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/drain_manifest.h"
#include "core/messages/messages.h"
#include "core/objects/in_parallel.h"
#include "core/objects/object_attributes.h"
#include "core/objects/object_place.h"
#include "core/objects/s3_store.h"
#include "manager/drain/imported_tree.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kLooksAtOnce = 16;
constexpr Duration kImportLongest = std::chrono::minutes(10);

/// An object of the earlier pool, with its path below the prefix.
struct Seen {
  std::string path;  ///< folders without their final slash
  bool is_folder = false;
  std::string key;
  ObjectStore::Found found;
  std::optional<ObjectAttributes> attributes;
  std::string text;  ///< the target of a symbolic link
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

class ObjectImport {
 public:
  ObjectImport(ObjectStore& store, std::string prefix, Time deadline)
      : store_(store), below_(prefix.empty() ? "" : prefix + "/"), deadline_(deadline) {}

  Outcome<void> run() {
    if (auto listed = list(); !listed) return listed;
    if (auto ended = end_uploads(); !ended) return ended;
    const auto looked =
        in_parallel(seen_.size(), kLooksAtOnce, [&](std::size_t i) { return look(seen_[i]); });
    if (!looked) return looked;
    const auto removed = in_parallel(temporary_.size(), kLooksAtOnce, [&](std::size_t i) {
      return store_.remove(temporary_[i], deadline_);
    });
    if (!removed) return removed;
    std::erase_if(seen_, [](const Seen& one) { return one.key.empty(); });
    for (const Seen& one : seen_) note_folders(one);
    for (const auto& [path, of] : folders_) add_folder(path, of);
    for (const Seen& one : seen_) add_file(one);
    return {};
  }

  ImportedTree& tree() { return tree_; }

 private:
  Outcome<void> list() {
    const std::string temporary = below_ + msg::kTemporaryFolder + "/";
    return each_object(store_, below_, deadline_, [&](const ObjectStore::Listed& object) {
      if (object.key.starts_with(temporary)) {
        temporary_.push_back(object.key);
        return true;
      }
      Seen one;
      one.key = object.key;
      one.path = object.key.substr(below_.size());
      one.is_folder = one.path.ends_with('/');
      if (one.is_folder) one.path.pop_back();
      if (one.path.empty() || one.path.starts_with(kLeaseName)) return true;
      if (!is_file_path(one.path)) {
        log::warning("the object {} cannot be shown: its key is no path", object.key);
      } else if (object.size_bytes > ObjectStore::kObjectBytesMax) {
        log::warning("the object {} cannot be shown: it has more than 5 TiB", object.key);
      } else {
        seen_.push_back(std::move(one));
      }
      return true;
    });
  }

  Outcome<void> end_uploads() {
    const auto uploads = store_.uploads(below_, deadline_);
    if (!uploads && uploads.error().error.os_errno == ENOSYS) return {};
    if (!uploads) return problem(uploads.error());
    for (const ObjectStore::Upload& upload : *uploads) {
      log::info("ends the upload of {} that an earlier pool has left", upload.key);
      if (auto ended = store_.abort_upload(upload, deadline_); !ended) return ended;
    }
    return {};
  }

  Outcome<void> look(Seen& one) {
    auto found = store_.find(one.key, deadline_);
    if (!found && is_absent(found.error())) {
      one.key.clear();  // was removed meanwhile
      return {};
    }
    if (!found) return problem(found.error());
    one.found = std::move(*found);
    one.attributes = ObjectAttributes::parse(one.found.metadata);
    if (!one.attributes || one.attributes->kind != ObjectKind::kSymlink) return {};
    auto text = get_text(store_, one.key, limits::kSymlinkBytesMax, deadline_);
    if (!text) return problem(text.error());
    one.text = std::move(*text);
    return {};
  }

  /// Objects below a folder prove that the folder exists, even without its own object.
  void note_folders(const Seen& one) {
    if (one.is_folder) folders_[one.path] = &one;
    for (std::string at = folder_of(one.path); !at.empty(); at = folder_of(at)) {
      folders_.try_emplace(at, nullptr);
    }
  }

  /// Begins the description of a file. The attributes of an object of no pool are chosen.
  RestoreFile begin(const std::string& path, const Seen* of, FileType type) const {
    RestoreFile file;
    Attributes& to = file.attributes;
    to.type = type;
    const bool known = of != nullptr && of->attributes;
    to.mode = known ? of->attributes->mode : (type == FileType::kDirectory ? 0755 : 0644);
    to.uid = known ? of->attributes->uid : ::geteuid();
    to.gid = known ? of->attributes->gid : ::getegid();
    const std::int64_t changed_ns = of == nullptr ? 0 : to_ns({of->found.changed_s, 0});
    to.mtime_ns = known ? of->attributes->mtime_ns : changed_ns;
    to.atime_ns = to.ctime_ns = to.mtime_ns;
    const std::string folder = folder_of(path);
    file.parent = folder.empty() ? kRootFile : ids_.at(folder);
    file.name = folder.empty() ? path : path.substr(folder.size() + 1);
    return file;
  }

  /// Folders come in the order of their paths, so the folder above is there.
  void add_folder(const std::string& path, const Seen* of) {
    ids_[path] = tree_.add(begin(path, of, FileType::kDirectory));
  }

  void add_file(const Seen& one) {
    if (one.is_folder) return;
    const ObjectKind kind = one.attributes ? one.attributes->kind : ObjectKind::kFile;
    const std::string folder = folder_of(one.path);
    const std::string name = folder.empty() ? one.path : one.path.substr(folder.size() + 1);
    if (name == kPolicyLinkName && kind == ObjectKind::kSymlink) {
      return tree_.use_policy(one.text, one.key, folder.empty() ? kRootFile : ids_.at(folder));
    }
    if (is_pool_file(name)) return;
    if (folders_.contains(one.path)) {
      log::warning("the object {} cannot be shown: a folder has its name", one.key);
      return;
    }
    switch (kind) {
      case ObjectKind::kFile:
        return add_regular(one);
      case ObjectKind::kSymlink: {
        if (one.text.empty()) return;
        RestoreFile file = begin(one.path, &one, FileType::kSymlink);
        file.target = one.text;
        tree_.add(std::move(file));
        return;
      }
      case ObjectKind::kFifo:
        tree_.add(begin(one.path, &one, FileType::kFifo));
        return;
      case ObjectKind::kSocket:
        tree_.add(begin(one.path, &one, FileType::kSocket));
        return;
      case ObjectKind::kDirectory:
        return;
    }
  }

  void add_regular(const Seen& one) {
    RestoreFile file = begin(one.path, &one, FileType::kRegular);
    // A listing and a look at the object may differ.
    const std::uint64_t size = std::min(one.found.size_bytes, ObjectStore::kObjectBytesMax);
    file.attributes.size_bytes = size;
    file.attributes.version = 1;
    file.map = map_of(size, ranges_of(one), {{0, size}});
    file.drained = file.evicted = true;
    tree_.add(std::move(file));
  }

  /// Returns the known checksums. The ranges of a very large file are longer than a chunk; reads of
  /// it are not checked, `stdchk verify` checks it.
  static std::vector<DrainedRange> ranges_of(const Seen& one) {
    std::vector<DrainedRange> out;
    const std::uint64_t size = one.found.size_bytes;
    if (!one.attributes || one.attributes->range_bytes > limits::kChunkBytesMax) return out;
    const std::uint64_t range = one.attributes->range_bytes;
    if (one.attributes->crcs.size() != size / range + (size % range == 0 ? 0 : 1)) return out;
    for (std::uint64_t at = 0; at < size; at += range) {
      out.push_back({at, static_cast<std::uint32_t>(std::min(range, size - at)),
                     one.attributes->crcs[at / range]});
    }
    return out;
  }

  ObjectStore& store_;
  const std::string below_;
  const Time deadline_;
  std::vector<Seen> seen_;
  std::vector<std::string> temporary_;
  std::map<std::string, const Seen*> folders_;  ///< nullptr: without an object
  std::map<std::string, FileId> ids_;           ///< of folders
  ImportedTree tree_;
};

}  // namespace

Status import_objects(ObjectStore& store, const std::string& prefix, Time deadline,
                      const std::function<void(Command)>& emit) {
  ObjectImport import(store, prefix, deadline);
  if (const auto done = import.run(); !done) {
    log::error("{}", done.error().text);
    return fail(Code::kSystem, "import.objects", done.error().error.os_errno);
  }
  import.tree().emit(emit);
  if (import.tree().count() > 0) {
    log::info("{} files and directories were found in the object store", import.tree().count());
  }
  return {};
}

Status import_objects(const std::string& place, const std::function<void(Command)>& emit) {
  const SystemClock clock;
  const auto parsed = ObjectPlace::parse(place);
  auto store = parsed ? open_object_store(*parsed, clock)
                      : Outcome<std::unique_ptr<ObjectStore>>(tl::unexpect, parsed.error());
  if (!store) {
    log::error("{}", store.error().text);
    return fail(store.error().error);
  }
  return import_objects(**store, parsed->prefix, clock.now() + kImportLongest, emit);
}

}  // namespace stdchk::manager
