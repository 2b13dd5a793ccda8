#include "fuse/directory_requests.h"

#include <sys/stat.h>

#include "client/blocking/name_leasing.h"
#include "core/base/assert.h"
#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

constexpr std::size_t kDotEntries = 2;  // "." and ".."

DirectoryHandle* key_of(const fuse_file_info* info) {
  return reinterpret_cast<DirectoryHandle*>(info->fh);
}

}  // namespace

/// The result keeps the handle alive: the caller of a readdir may close the directory as soon as it
/// has the answer.
std::shared_ptr<DirectoryHandle> DirectoryRequests::directory_of(const fuse_file_info* info) {
  const MutexLock lock(mutex_);
  return directories_.at(key_of(info));
}

void DirectoryRequests::opendir(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.opendir"));
  auto handle = std::make_shared<DirectoryHandle>();
  handle->node = node;
  DirectoryHandle* address = handle.get();
  {
    const MutexLock lock(mutex_);
    directories_[address] = std::move(handle);
  }
  info->fh = reinterpret_cast<std::uint64_t>(address);
  if (fuse_reply_open(request, info) == -ENOENT) {
    const MutexLock lock(mutex_);
    directories_.erase(address);
  }
}

/// Answers from entry `offset` of the snapshot on. Offset 0 takes a new snapshot (rewinddir).
void DirectoryRequests::readdir(fuse_req_t request, std::size_t size, off_t offset,
                                fuse_file_info* info, bool plus) {
  const auto kept = directory_of(info);
  DirectoryHandle& handle = *kept;
  const MutexLock lock(handle.mutex);
  if (offset == 0 || !handle.loaded) {
    auto entries = filesystem_.read_directory(handle.node->file);
    if (!entries) return reply(request, fail(entries.error()));
    handle.entries = std::move(*entries);
    handle.loaded = true;
  }
  std::vector<char> out(size);
  std::vector<NodeId> counted;
  std::size_t used = 0;
  for (auto at = static_cast<std::size_t>(offset); at < handle.entries.size() + kDotEntries; at++) {
    bool dot = at < kDotEntries;
    auto next = static_cast<off_t>(at + 1);
    const char* name = at == 0   ? "."
                       : at == 1 ? ".."
                                 : handle.entries[at - kDotEntries].name.c_str();
    Attributes attributes;
    if (dot) {
      attributes.id = handle.node->file;
      attributes.type = FileType::kDirectory;
    } else {
      attributes = handle.entries[at - kDotEntries].attributes;
    }
    std::size_t needed = 0;
    std::size_t room = size - used;
    if (plus) {
      fuse_entry_param entry{};
      entry.attr = stat_of(attributes);
      // The kernel counts a look-up only for entries that fit, so ask for the length first.
      needed = fuse_add_direntry_plus(request, nullptr, 0, name, nullptr, 0);
      if (needed > room) break;
      if (!dot) {
        auto made = entries_.make(attributes, handle.node->id, name);
        if (!made) break;
        entry = *made;
        counted.push_back(entry.ino);
      }
      fuse_add_direntry_plus(request, out.data() + used, room, name, &entry, next);
    } else {
      struct stat stat = stat_of(attributes);
      needed = fuse_add_direntry(request, out.data() + used, room, name, &stat, next);
      if (needed > room) break;
    }
    used += needed;
  }
  if (fuse_reply_buf(request, out.data(), used) == -ENOENT) {
    for (NodeId node : counted) nodes_.forget(node, 1);
  }
}

void DirectoryRequests::fsyncdir(fuse_req_t request, fuse_ino_t number) {
  const auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.fsyncdir"));
  reply(request, client::sync_names(filesystem_, node->file));
}

void DirectoryRequests::releasedir(fuse_req_t request, fuse_file_info* info) {
  {
    const MutexLock lock(mutex_);
    directories_.erase(key_of(info));
  }
  fuse_reply_err(request, 0);
}

}  // namespace stdchk::mount
