#include "fuse/cache_choice.h"

#include <fcntl.h>

#include <string>

#include "core/policy/image_name.h"
#include "fuse/xattr_requests.h"

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

/// For how long a folder's write mode is cached; another mount may change it.
constexpr auto kFolderModeAge = 10s;
constexpr std::size_t kFolderModesMax = 65536;

}  // namespace

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

void CacheChoice::forget(FileId folder) {
  const MutexLock lock(mutex_);
  folder_modes_.erase(folder);
}

bool CacheChoice::uses_cache_in_folder(FileId directory) {
  Time now = clock_.now();
  {
    const MutexLock lock(mutex_);
    auto found = folder_modes_.find(directory);
    if (found != folder_modes_.end() && now < found->second.until) return found->second.cached;
  }
  bool cached = false;
  if (auto all = filesystem_.xattrs(directory)) {
    for (const auto& [key, value] : *all) cached |= key == kXattrWriteMode && value == "cached";
  }
  const MutexLock lock(mutex_);
  if (folder_modes_.size() >= kFolderModesMax) folder_modes_.clear();
  folder_modes_[directory] = {cached, now + kFolderModeAge};
  return cached;
}

bool CacheChoice::is_direct(Node& node, int flags, bool insisted) {
  if (insisted) return true;  // the node's pages and size belong to another version
  bool write = writes(flags);
  if ((flags & O_APPEND) != 0 && write && exchange_.allows_mmap()) return node.cached_opens == 0;
  if ((flags & O_ACCMODE) == O_RDWR) return false;  // small accesses and mappings are likely
  if (!write && read_mode_ != ReadMode::kAuto) {
    return read_mode_ == ReadMode::kDirect;
  }
  if (node.cached_opens > 0 && write) return false;  // all openers must use one cache
  NodeId parent_id = 0;
  std::string name;
  {
    const ReaderLock lock(node.mutex);
    parent_id = node.parent;
    name = node.name;
    if (!write && !node.writers.empty()) return false;
  }
  auto parent = nodes_.find(parent_id);
  if (!parent) return write;
  if (write) {
    return !uses_cache_in_folder(parent->file) && !write_modes_.choose_cached(parent->file, name);
  }
  // An image is read once, from start to end. Other files may be programs and libraries.
  return exchange_.allows_mmap() && parse_image_name(name).has_value() &&
         !read_modes_.choose_cached(parent->file, name);
}

void CacheChoice::record_calls(const Handle& handle) {
  if (!handle.direct) return;
  const Node& node = *handle.node;
  NodeId parent_id = 0;
  std::string name;
  {
    const ReaderLock lock(node.mutex);
    parent_id = node.parent;
    name = node.name;
  }
  auto parent = nodes_.find(parent_id);
  if (!parent) return;
  CacheModes& modes = handle.writes ? write_modes_ : read_modes_;
  modes.record_calls(parent->file, name, handle.calls, handle.call_bytes);
}

}  // namespace stdchk::mount
