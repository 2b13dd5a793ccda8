#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "fuse/bridge.h"

struct fuse_session;

namespace stdchk::mount {

struct MountOptions {
  std::string mountpoint;
  std::string source = "stdchk";  ///< the mount table shows this name; see is_source_name()
  bool allow_other = false;       ///< all users may use the mount
  bool devices = false;           ///< device nodes can be opened and set-ID bits count; for root
  /// Receive requests in the Filesystem's window. Then connect() must have made the Filesystem.
  bool use_window = false;
  BridgeOptions bridge;
};

/// A Mount shows one client::Filesystem at one directory.
///
/// Owns: the kernel's session and the threads that serve it; not the Filesystem.
/// Threads: call start(), stop() and the destructor on one thread. Each serving thread handles one
///   request at a time. When no thread waits for the next request, one more starts, up to
///   kThreadsMax.
/// Errors: start() logs one sentence that says what is wrong.
class Mount {
 public:
  static constexpr std::size_t kThreadsMax =
      320;  ///< more than reads of hanging files take (client/read/reader.h)
  static constexpr std::size_t kThreadsIdleMax = 4;

  static Result<std::unique_ptr<Mount>> start(client::Filesystem& filesystem, Clock& clock,
                                              const MountOptions& options);
  /// Unmounts, if necessary, and waits for the threads.
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  /// Sets a function that is called once, on any thread, when the kernel has ended the session
  /// (fusermount3 -u).
  void on_end(std::function<void()> call);
  const RequestCounts& request_counts() { return bridge_.counts(); }
  /// The kernel's number of this mount; see stdchk::mount_id().
  std::uint64_t mount_id() const { return mount_id_; }
  /// True after the kernel ended the session.
  bool ended() const;
  /// Unmounts and ends serving. Calls that wait in the kernel get an error. Idempotent.
  void stop();

 private:
  Mount(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
        const MountOptions& options);
  void serve();
  void start_thread_locked() STDCHK_REQUIRES(mutex_);

  const MountOptions options_;
  client::Filesystem& filesystem_;
  bool hooked_ = false;  ///< threads receive into buffers of their own
  Bridge bridge_;
  fuse_session* session_ = nullptr;
  bool mounted_ = false;
  std::uint64_t mount_id_ = 0;

  mutable Mutex mutex_;
  CondVar thread_ended_;
  std::size_t threads_ STDCHK_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_ STDCHK_GUARDED_BY(mutex_) = 0;  ///< threads that wait for a request
  std::vector<pthread_t> running_ STDCHK_GUARDED_BY(mutex_);
  std::function<void()> on_end_ STDCHK_GUARDED_BY(mutex_);
  bool ended_ STDCHK_GUARDED_BY(mutex_) = false;
};

}  // namespace stdchk::mount
