#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "client/api/filesystem.h"
#include "core/base/mutex.h"
#include "fuse/bridge_options.h"
#include "fuse/cache_choice.h"
#include "fuse/caller.h"
#include "fuse/entries.h"
#include "fuse/kernel_cache.h"
#include "fuse/locker.h"
#include "fuse/node_table.h"
#include "fuse/refused_calls.h"
#include "fuse/request.h"
#include "fuse/request_counts.h"
#include "fuse/set_id_bits.h"

namespace stdchk::mount {

/// A FileRequests answers the requests that open, read, write, lock and close regular files. It
/// decides which node an open uses, and whether a FLUSH commits.
///
/// Owns: the open files; its end aborts what they did not commit.
/// Threads: any; each function answers its request. Errors: as Bridge.
class FileRequests {
 public:
  /// The neighbours of the open files, which outlive them.
  struct Neighbours {
    client::Filesystem& filesystem;
    NodeTable& nodes;
    KernelCache& cache;
    CacheChoice& choice;
    RefusedCalls& refused;
    SetIdBits& set_id;
    RequestCounts& counts;
    const InitExchange& exchange;
  };

  FileRequests(const Neighbours& neighbours, bool commit_unseen_writers);

  void start(fuse_session* session) { locker_.start(session); }
  void stop() { locker_.stop(); }

  void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              fuse_file_info* info);
  void read(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info);
  void write(fuse_req_t request, const char* bytes, std::size_t size, off_t offset,
             fuse_file_info* info);
  void flush(fuse_req_t request, fuse_file_info* info);
  void release(fuse_req_t request, fuse_file_info* info);
  void fsync(fuse_req_t request, fuse_file_info* info);
  void fallocate(fuse_req_t request, int mode, off_t offset, off_t length, fuse_file_info* info);
  void lseek(fuse_req_t request, off_t offset, int whence, fuse_file_info* info);

  // file_locks.cpp
  /// fcntl(2): `sleep` for F_SETLKW.
  void setlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock, bool sleep);
  void getlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock);
  void flock(fuse_req_t request, fuse_file_info* info, int operation);

 private:
  struct Opened {
    std::unique_ptr<Handle> handle;
    bool keep_cache = false;
  };
  /// Ends a flush() when the state of its caller is known.
  void end_writes(fuse_req_t request, Handle& handle, std::uint64_t owner, CallerState caller);
  Result<Opened> open_node(const NodePtr& node, int flags, std::int32_t thread);
  std::uint64_t add_handle(std::unique_ptr<Handle> handle);
  Status commit(Handle& handle, bool closes = false);
  void end_open(Handle& handle, std::optional<std::uint64_t> flock_owner = {});
  Status check_room(std::uint64_t bytes);
  Status allocate(Handle& handle, int mode, std::uint64_t from, std::uint64_t end);

  const Neighbours neighbours_;
  const bool commit_unseen_writers_;
  Locker locker_;
  CallerInspector callers_;
  Mutex mutex_;
  std::unordered_map<Handle*, std::unique_ptr<Handle>> handles_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
