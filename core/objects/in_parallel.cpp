#include "core/objects/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/thread.h"

namespace stdchk {
namespace {

struct Shared {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mutex;
  std::optional<Problem> first STDCHK_GUARDED_BY(mutex);
};

}  // namespace

Outcome<void> in_parallel(std::size_t count, std::size_t threads,
                          const std::function<Outcome<void>(std::size_t)>& work) {
  Shared shared;
  const auto run = [&] {
    while (!shared.failed) {
      const std::size_t index = shared.next++;
      if (index >= count) return;
      const auto done = work(index);
      if (done) continue;
      shared.failed = true;
      const MutexLock lock(shared.mutex);
      if (!shared.first) shared.first = done.error();
    }
  };
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < std::min(threads, count); ++i) {
    helpers.push_back(start_without_signals(run));
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  const MutexLock lock(shared.mutex);
  if (shared.first) return problem(*shared.first);
  return {};
}

}  // namespace stdchk
