#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "core/base/mutex.h"

struct fuse_session;

namespace stdchk::mount {

/// A Notifier tells the kernel to drop what it caches. It needs a thread of its own, because the
/// kernel takes locks for that. A request may hold these locks while it waits for one of the
/// mount's threads.
///
/// Threads: post() on any thread; the calls run one by one on the notifier's thread.
/// Limits: at most kQueueMax calls wait. More are dropped, because the kernel's caches expire after
///   limits::kCacheLease anyway.
class Notifier {
 public:
  static constexpr std::size_t kQueueMax = 65536;

  Notifier();
  ~Notifier();  ///< drops calls that wait, and joins the thread
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

  /// post() drops its call before start() and after stop().
  void start(fuse_session* session);
  void stop();
  void post(std::function<void(fuse_session*)> call);

 private:
  void run();

  Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void(fuse_session*)>> queue_ STDCHK_GUARDED_BY(mutex_);
  fuse_session* session_ STDCHK_GUARDED_BY(mutex_) = nullptr;
  bool ended_ STDCHK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stdchk::mount
