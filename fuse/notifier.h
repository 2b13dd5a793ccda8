#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

struct fuse_session;

namespace stdchk::mount {

/// A Notifier tells the kernel to drop what it caches, from a thread of its own: the kernel takes
/// locks for it that a request may hold which waits for a thread of ours.
///
/// Threads: post() any; the calls run one after another on the notifier's thread.
/// Limits: kQueueMax calls wait; one more is dropped, because the kernel's caches expire after
///   limits::kCacheLease anyway.
class Notifier {
 public:
  static constexpr std::size_t kQueueMax = 65536;

  Notifier();
  ~Notifier();  ///< drops what waits, and joins the thread
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// Calls go nowhere before start() and after stop().
  void start(fuse_session* session);
  void stop();
  void post(std::function<void(fuse_session*)> call);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void(fuse_session*)>> queue_;
  fuse_session* session_ = nullptr;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace stdchk::mount
