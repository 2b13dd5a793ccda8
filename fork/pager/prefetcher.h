#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "fork/pager/image.h"

namespace stdchk::pager {

/// A Prefetcher fetches ranges of images ahead of their clones, on threads of its own.
///
/// Owns: its threads. The destructor drops what has not begun.
/// Threads: any.
/// Limits: kQueueMax ranges wait; another one is dropped, because a clone that needs it will fault.
class Prefetcher {
 public:
  static constexpr std::size_t kQueueMax = 4096;

  /// `fetched` is called after each range, on the prefetcher's thread.
  Prefetcher(std::size_t threads, std::function<void()> fetched);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  void add(std::weak_ptr<Image> image, const BlockRange& range);
  std::uint64_t dropped() const;

 private:
  struct Job {
    std::weak_ptr<Image> image;
    BlockRange range;
  };
  void work();

  const std::function<void()> fetched_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Job> queue_ STDCHK_GUARDED_BY(mutex_);
  bool ending_ STDCHK_GUARDED_BY(mutex_) = false;
  std::uint64_t dropped_ STDCHK_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace stdchk::pager
