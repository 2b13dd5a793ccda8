#pragma once

#include <atomic>
#include <functional>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace stdchk::benefactor {

/// A Stop tells workers that their owner ends, even while they sleep.
///
/// Threads: any.
class Stop {
 public:
  Stop() = default;
  /// `pause` replaces sleeping: a simulator that runs jobs inline must not sleep.
  explicit Stop(std::function<void(Duration)> pause) : pause_(std::move(pause)) {}

  void request() {
    {
      const MutexLock lock(mutex_);
      requested_ = true;
    }
    wake_.notify_all();
  }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }
  /// Sleeps. Returns false when the owner ends.
  bool sleep(Duration time) {
    if (pause_) {
      pause_(time);
      return !requested();
    }
    MutexLock lock(mutex_);
    return !wake_.wait_for(lock, time, [this] { return requested(); });
  }

 private:
  std::function<void(Duration)> pause_;
  Mutex mutex_;
  CondVar wake_;
  std::atomic<bool> requested_{false};
};

}  // namespace stdchk::benefactor
