#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/mutex.h"

namespace stdchk {

/// An Executor runs work that would block a reactor: hashing, copying, file access. The work hands
/// its result back by Reactor::post.
///
/// Threads: any thread may call run().
/// Limits: none of its own; callers bound their work in flight (a window, a table of requests).
class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs `work` once, now or later, on this thread or another thread.
  virtual void run(std::function<void()> work) = 0;
};

/// An InlineExecutor runs work before run() returns. For simulators and tests.
class InlineExecutor final : public Executor {
 public:
  void run(std::function<void()> work) override { work(); }
};

/// A ThreadExecutor runs work on its own threads. Work begins in the order of the run() calls;
/// several pieces run at once.
///
/// Owns: its threads. The destructor destroys work that has not begun, on the calling thread, and
/// waits for running work. Long work must therefore poll a flag of its owner.
class ThreadExecutor final : public Executor {
 public:
  /// `name` is the threads' name, at most 15 bytes. Starts at least one thread.
  ThreadExecutor(const std::string& name, std::size_t threads);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void run(std::function<void()> work) override;
  /// Starts another thread: the present ones may hang for ever. Not
  /// concurrently with the destructor.
  void add_thread();
  std::size_t thread_count() const;

 private:
  void work_until_closed();

  const std::string name_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ STDCHK_GUARDED_BY(mutex_);
  bool closed_ STDCHK_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ STDCHK_GUARDED_BY(mutex_);
};

/// A LazyExecutor uses the executor given to it. Without a given executor, the first work starts
/// threads of its own.
///
/// Threads: one at a time.
class LazyExecutor final : public Executor {
 public:
  LazyExecutor(Executor* given, const char* name, std::size_t threads = 1)
      : given_(given), name_(name), threads_(threads) {}
  void run(std::function<void()> work) override {
    if (given_ != nullptr) return given_->run(std::move(work));
    if (!own_.has_value()) own_.emplace(name_, threads_);
    own_->run(std::move(work));
  }

 private:
  Executor* const given_;
  const char* const name_;
  const std::size_t threads_;
  std::optional<ThreadExecutor> own_;
};

}  // namespace stdchk
