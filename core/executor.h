#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stdchk {

/// An Executor runs work that would hold up a reactor: hashing, copying, files. The work hands its
/// result back by Reactor::post.
///
/// Threads: run() may be called on any thread.
/// Limits: none of its own; callers bound what they have under way (a window, a table of requests).
class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs `work` once, now or later, on this thread or another one.
  virtual void run(std::function<void()> work) = 0;
};

/// An InlineExecutor runs work before run() returns: for simulators and tests.
class InlineExecutor final : public Executor {
 public:
  void run(std::function<void()> work) override { work(); }
};

/// A ThreadExecutor runs work on threads of its own, in the order it was given; several at once.
///
/// Owns: its threads. The destructor drops what was not begun (unrun, destroyed on the calling
///   thread) and waits for what was: long work must look at a flag of its owner.
class ThreadExecutor final : public Executor {
 public:
  /// `name` is what the threads are called, at most 15 bytes. At least one thread is made.
  ThreadExecutor(const std::string& name, std::size_t threads);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void run(std::function<void()> work) override;
  /// One more: what the others hang in may never end. Not at the same time as the destructor.
  void add_thread();
  std::size_t thread_count() const;

 private:
  void work_until_closed();

  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

/// A LazyExecutor is the executor that it is given or, without one, threads of its own that are
/// started with the first work.
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
