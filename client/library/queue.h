#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "client/api/stdchk.h"
#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

/// A stdchk_queue runs blocking calls of the C interface in threads of its own.
///
/// Owns: its threads, and results until the program fetches them.
/// Threads: any.
/// Errors: add() fails with kWouldBlock when calls and results fill the queue.
/// Limits: `depth` calls and results.
struct stdchk_queue {
 public:
  enum class Kind : std::uint8_t { kWrite, kRead, kSync, kClose };
  struct Call {
    Kind kind = Kind::kWrite;
    stdchk_file* file = nullptr;
    void* bytes = nullptr;
    std::size_t count = 0;
    std::uint64_t offset = 0;
    void* tag = nullptr;
    bool running = false;
    /// A sync or close runs after all earlier calls on its file, and before all later ones.
    bool is_barrier() const { return kind == Kind::kSync || kind == Kind::kClose; }
  };

  static stdchk::Result<std::unique_ptr<stdchk_queue>> create(std::size_t depth,
                                                              std::size_t threads);
  ~stdchk_queue();

  stdchk::Status add(const Call& call);
  std::size_t fetch(stdchk_completion* out, std::size_t count, unsigned timeout_ms);
  /// The number of calls and results that the program has not fetched.
  std::size_t held() const;
  int descriptor() const { return event_.get(); }

 private:
  stdchk_queue(std::size_t depth, stdchk::Descriptor event)
      : depth_(depth), event_(std::move(event)) {}
  void work();
  std::list<Call>::iterator next_runnable() STDCHK_REQUIRES(mutex_);
  void put(const stdchk_completion& result) STDCHK_REQUIRES(mutex_);

  const std::size_t depth_;
  const stdchk::Descriptor event_;  ///< an eventfd that counts results
  mutable stdchk::Mutex mutex_;
  stdchk::CondVar work_;  ///< a call may be runnable, or the queue ends
  stdchk::CondVar result_;
  /// Calls in the order in which they came; running ones stay.
  std::list<Call> calls_ STDCHK_GUARDED_BY(mutex_);
  std::deque<stdchk_completion> results_ STDCHK_GUARDED_BY(mutex_);
  bool ends_ STDCHK_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};
