#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/filesystem.h"
#include "core/clock.h"
#include "core/result.h"
#include "fuse/bridge.h"

struct fuse_session;

namespace stdchk::mount {

struct MountOptions {
  std::string mountpoint;
  bool allow_other = false;  ///< other users than the one who mounts may use it
  /// Receive requests in the window of the Filesystem, which then must be one that connect() made.
  bool use_window = false;
  BridgeOptions bridge;
};

/// A Mount shows one client::Filesystem at one directory.
///
/// Owns: the kernel's session and the threads that serve it; not the Filesystem.
/// Threads: start(), stop() and the destructor: one. A thread waits for each request; when the last
///   one that waits gets work, another one is started, up to kThreadsMax.
/// Errors: start() says with one sentence in the log what is wrong.
class Mount {
 public:
  static constexpr std::size_t kThreadsMax =
      320;  ///< more than reads of hanging files take (client/reader.h)
  static constexpr std::size_t kThreadsIdleMax = 4;

  static Result<std::unique_ptr<Mount>> start(client::Filesystem& filesystem, Clock& clock,
                                              const MountOptions& options);
  /// Unmounts, if that was not done from outside, and waits for the threads.
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  /// Called once on some thread when the kernel ended the session (fusermount3 -u).
  void on_end(std::function<void()> call);
  const RequestCounts& request_counts() { return bridge_.counts(); }
  /// The kernel's number of this mount; see stdchk::mount_id().
  std::uint64_t mount_id() const { return mount_id_; }
  /// True after the kernel ended the session.
  bool ended() const;
  /// Ends serving: unmounts; what waits in the kernel gets an error. Idempotent.
  void stop();

 private:
  Mount(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
        const MountOptions& options);
  void serve();
  void start_thread_locked();

  const MountOptions options_;
  client::Filesystem& filesystem_;
  bool hooked_ = false;  ///< the threads' own buffers can be used
  Bridge bridge_;
  fuse_session* session_ = nullptr;
  bool mounted_ = false;
  std::uint64_t mount_id_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable thread_ended_;
  std::size_t threads_ = 0;         ///< guarded
  std::size_t waiting_ = 0;         ///< guarded: those of them that wait for a request
  std::vector<pthread_t> running_;  ///< guarded
  std::function<void()> on_end_;    ///< guarded
  bool ended_ = false;              ///< guarded
};

}  // namespace stdchk::mount
