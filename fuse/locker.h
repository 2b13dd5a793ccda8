#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "client/api/filesystem.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "fuse/handle.h"

namespace stdchk::mount {

/// A Locker answers flock() and fcntl() with locks of the whole pool. The new owner of a lock sees
/// the newest version of the file. A release commits first. A request that waits holds no thread of
/// the mount.
///
/// Owns: its threads, and the record of owners that may have record locks.
/// Threads: any. The Locker has threads of its own, because the kernel must write its dirty pages
///   back, which needs threads of the mount.
/// Errors: EINTR when a signal ends a wait, EAGAIN when another owner has the lock, EDEADLK.
/// Limits: with the write-back cache the kernel never shortens an inode. A file that another mount
///   has cut keeps its length for the descriptors that are open here, and for opens beside a writer.
///   Other opens get another node.
class Locker {
 public:
  /// `commit` makes a version of what the handle's session has written.
  Locker(client::Filesystem& filesystem, std::function<Status(Handle&)> commit);
  ~Locker();
  Locker(const Locker&) = delete;
  Locker& operator=(const Locker&) = delete;

  void start(fuse_session* session);
  /// Ends the threads. Requests under way are not answered any more.
  void stop();

  /// Takes, changes or releases a lock, and answers the request. `sleep`: waits for the lock.
  void set(fuse_req_t request, Handle& handle, msg::SetLock wanted, bool sleep);
  void get(fuse_req_t request, const Handle& handle, msg::GetLock wanted);
  /// Answers lseek(2) with SEEK_DATA or SEEK_HOLE. While the file is written through the page
  /// cache, the kernel writes its dirty pages back first.
  void seek(fuse_req_t request, Handle& handle, std::uint64_t offset, client::Seek what);
  /// Ends the record locks of `owner` on the file, because a descriptor is closed (fcntl(2)). Calls
  /// `done` when the manager has released them. An owner without locks needs no call to the
  /// manager.
  void closed(Handle& handle, std::uint64_t owner, const std::function<void()>& done);
  /// Ends the locks that an open still has at its end: those of its open file description. These are
  /// the record locks of F_OFD_SETLK, and the lock of flock() by `flock_owner`, if the kernel names
  /// one.
  void ended(const Handle& handle, std::optional<std::uint64_t> flock_owner);

 private:
  struct Wait;

  struct Threads;

  using Owner = std::tuple<FileId, msg::LockSpace, std::uint64_t>;

  void end_lock(const Handle& handle, const Owner& owner) STDCHK_REQUIRES(mutex_);
  void release(fuse_req_t request, Handle& handle, const msg::SetLock& wanted);
  void take(fuse_req_t request, Handle& handle, const msg::SetLock& wanted);
  void answer(fuse_req_t request, Handle& handle, Result<msg::LockOutcome> outcome);
  Status write_back(Handle& handle);
  Status catch_up(Handle& handle);
  void grow(const Handle& handle, std::uint64_t size_bytes);
  void drop_pages(const Handle& handle);

  client::Filesystem& filesystem_;
  const std::function<Status(Handle&)> commit_;
  /// Shared with callbacks of the library, which may come after the end of this object.
  const std::shared_ptr<Threads> threads_;
  Mutex mutex_;
  std::uint64_t next_ticket_ STDCHK_GUARDED_BY(mutex_) = 1;
  /// The last open that each owner has used for locks. A close() by the owner removes it. A new open
  /// file description may have the number of another one whose RELEASE has not come yet.
  std::map<Owner, const Handle*> owners_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
