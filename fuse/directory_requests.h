#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/mutex.h"
#include "fuse/entries.h"
#include "fuse/node_table.h"
#include "fuse/request.h"

namespace stdchk::mount {

/// A DirectoryHandle is one opendir. It keeps a snapshot of the entries, taken at offset 0, so that
/// offsets stay valid.
struct DirectoryHandle {
  NodePtr node;
  Mutex mutex;
  bool loaded STDCHK_GUARDED_BY(mutex) = false;
  std::vector<msg::DirectoryEntry> entries STDCHK_GUARDED_BY(mutex);
};

/// A DirectoryRequests answers the requests that list directories.
///
/// Owns: the open directories. Threads: any; each function answers its request. Errors: as Bridge.
class DirectoryRequests {
 public:
  DirectoryRequests(client::Filesystem& filesystem, NodeTable& nodes, Entries& entries)
      : filesystem_(filesystem), nodes_(nodes), entries_(entries) {}

  void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void readdir(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info, bool plus);
  void releasedir(fuse_req_t request, fuse_file_info* info);
  /// Waits until all changes of names are durable that were answered.
  void fsyncdir(fuse_req_t request, fuse_ino_t number);

 private:
  std::shared_ptr<DirectoryHandle> directory_of(const fuse_file_info* info);

  client::Filesystem& filesystem_;
  NodeTable& nodes_;
  Entries& entries_;
  Mutex mutex_;
  std::unordered_map<DirectoryHandle*, std::shared_ptr<DirectoryHandle>> directories_
      STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
