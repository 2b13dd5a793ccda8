#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

namespace stdchk {

/// An EventSource is an object that the reactor's thread polls for work: above all an endpoint.
class EventSource {
 public:
  virtual ~EventSource() = default;
  /// Handles all ready events, without waiting. Returns true when there was an event.
  virtual bool poll() = 0;
  /// A descriptor that becomes readable when poll() has work; -1 when there is none.
  virtual int fd() const = 0;
  /// Called before the reactor sleeps. Returns false when poll() must be called again first
  /// (fi_trywait(3)).
  virtual bool may_sleep() = 0;
  /// The longest sleep allowed now, for sources whose progress no descriptor announces.
  virtual Duration sleep_max() const { return Duration::max(); }
};

/// A TimerId identifies a scheduled call. Default constructed: none.
struct TimerId {
  Time at{};
  std::uint64_t sequence = 0;
  auto operator<=>(const TimerId&) const = default;
  explicit operator bool() const { return sequence != 0; }
};

/// A Reactor runs all work of one thread: event sources, timers, and calls posted by other threads.
///
/// Owns: timers and posted calls; not the sources.
/// Threads: all functions but post() and stop() belong to the thread that calls run_once().
/// Limits: at most kReactorPostsMax posted calls wait; then post() fails with kBusy.
class Reactor {
 public:
  /// Needs an eventfd and an epoll instance from the operating system; aborts without them.
  explicit Reactor(Clock& clock);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  Clock& clock() { return clock_; }

  void add(EventSource& source);
  void remove(EventSource& source);

  /// Calls `call` once when the time `at` has come. Never calls it within schedule_at() itself.
  TimerId schedule_at(Time at, std::function<void()> call);
  TimerId schedule_after(Duration delay, std::function<void()> call);
  /// Drops the call. A timer that has fired, or TimerId{}, is no error.
  void cancel(TimerId timer);
  /// Returns when the next timer is due; Time::max() without timers.
  Time next_timer() const;

  /// Runs `call` on the reactor's thread in its next turn, in the order of the posts. Any thread.
  Status post(std::function<void()> call);

  /// Runs one turn: sources, posted calls, due timers. Sleeps at most `wait_max` when none had
  /// work. Returns true when any had work.
  bool run_once(Duration wait_max);
  /// Runs turns until stop() is called.
  void run();
  void stop();  ///< any thread, and signal handlers
  /// Allows run() to run again.
  void resume() { stopped_.store(false, std::memory_order_relaxed); }
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  bool run_posts();
  bool run_timers();
  void sleep(Duration wait_max);
  void wake();

  Clock& clock_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::vector<EventSource*> sources_;
  std::map<TimerId, std::function<void()>> timers_;
  std::uint64_t timers_made_ = 0;
  Mutex posts_mutex_;
  std::vector<std::function<void()>> posts_ STDCHK_GUARDED_BY(posts_mutex_);
  std::vector<std::function<void()>> posts_running_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopped_{false};
};

}  // namespace stdchk
