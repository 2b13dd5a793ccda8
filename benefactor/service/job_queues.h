#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "core/base/executor.h"
#include "core/base/mutex.h"

namespace stdchk::benefactor {

/// A JobQueues has an executor run work in queues. Work of the same queue runs in order, one piece
/// after the other; it does not delay other queues.
///
/// Threads: any. Limits: none of its own. The executor must end before the JobQueues does.
class JobQueues {
 public:
  /// Names the queue of a file, or of a change of names, by its number.
  struct Key {
    bool of_file = false;
    std::uint64_t number = 0;
    auto operator<=>(const Key&) const = default;
  };
  explicit JobQueues(Executor& executor) : executor_(executor) {}

  void run(Key queue, std::function<void()> work) {
    {
      const MutexLock lock(mutex_);
      const auto [at, is_first] = waiting_.try_emplace(queue);
      if (!is_first) return at->second.push_back(std::move(work));
    }
    executor_.run([this, queue, work = std::move(work)] {
      work();
      while (const auto next = next_of(queue)) next();
    });
  }
  /// Returns the number of queues with work that runs or waits for a thread.
  std::size_t count() const {
    const MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  /// Returns the next work of the queue; nothing when the queue has ended.
  std::function<void()> next_of(Key queue) {
    const MutexLock lock(mutex_);
    const auto at = waiting_.find(queue);
    if (at->second.empty()) {
      waiting_.erase(at);
      return {};
    }
    std::function<void()> work = std::move(at->second.front());
    at->second.pop_front();
    return work;
  }

  Executor& executor_;
  mutable Mutex mutex_;
  /// Work behind the running work.
  std::map<Key, std::deque<std::function<void()>>> waiting_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::benefactor
