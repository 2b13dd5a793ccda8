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

/// A JobLines has an executor run work in lines. Work of the same line runs in order, one piece
/// after the other; it does not delay other lines.
///
/// Threads: any. Limits: none of its own. The executor must end before the JobLines does.
class JobLines {
 public:
  /// Names the line of a file, or of a change of names, by its number.
  struct Line {
    bool of_file = false;
    std::uint64_t number = 0;
    auto operator<=>(const Line&) const = default;
  };
  explicit JobLines(Executor& executor) : executor_(executor) {}

  void run(Line line, std::function<void()> work) {
    {
      const MutexLock lock(mutex_);
      const auto [at, is_first] = waiting_.try_emplace(line);
      if (!is_first) return at->second.push_back(std::move(work));
    }
    executor_.run([this, line, work = std::move(work)] {
      work();
      while (const auto next = next_of(line)) next();
    });
  }
  /// Returns the number of lines with work that runs or waits for a thread.
  std::size_t count() const {
    const MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  /// Returns the next work of the line; nothing when the line has ended.
  std::function<void()> next_of(Line line) {
    const MutexLock lock(mutex_);
    const auto at = waiting_.find(line);
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
  std::map<Line, std::deque<std::function<void()>>> waiting_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::benefactor
