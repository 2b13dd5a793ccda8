#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/base/executor.h"
#include "core/base/mutex.h"

namespace stdchk::mount {

/// Workers run work on threads of their own, from start() to stop().
///
/// Owns: the threads. Threads: any.
class Workers {
 public:
  Workers() = default;
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// See ThreadExecutor.
  void start(const std::string& name, std::size_t threads) {
    const MutexLock lock(mutex_);
    executor_ = std::make_unique<ThreadExecutor>(name, threads);
  }
  /// Waits for running work. Drops work that has not begun.
  void stop() {
    std::unique_ptr<ThreadExecutor> ending;
    const MutexLock lock(mutex_);
    ending.swap(executor_);
    // The destructor of `ending` runs after the lock's, because running work may call run().
  }
  /// Returns false, and drops the work, before start() and after stop().
  bool run(std::function<void()> work) {
    const MutexLock lock(mutex_);
    if (executor_) executor_->run(std::move(work));
    return executor_ != nullptr;
  }

 private:
  Mutex mutex_;
  std::unique_ptr<ThreadExecutor> executor_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
