#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "core/executor.h"

namespace stdchk::benefactor {

/// A JobLines has an executor do work in lines: what is in one line is done one after the other, in
/// the order it was given, and holds up no other line.
///
/// Threads: any. The executor must end before this does. Errors: none. Limits: none of its own.
class JobLines {
 public:
  /// Of a file, or of a change of names; its number.
  struct Line {
    bool of_file = false;
    std::uint64_t number = 0;
    auto operator<=>(const Line&) const = default;
  };
  explicit JobLines(Executor& executor) : executor_(executor) {}

  void run(Line line, std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      const auto [at, is_first] = waiting_.try_emplace(line);
      if (!is_first) return at->second.push_back(std::move(work));
    }
    executor_.run([this, line, work = std::move(work)] {
      work();
      while (const auto next = next_of(line)) next();
    });
  }
  /// Lines in which something is done, or waits for a thread.
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  /// Nothing: the line has ended.
  std::function<void()> next_of(Line line) {
    const std::lock_guard lock(mutex_);
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
  mutable std::mutex mutex_;
  std::map<Line, std::deque<std::function<void()>>> waiting_;  ///< behind what is done now
};

}  // namespace stdchk::benefactor
