#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/result.h"

namespace stdchk {

/// An EventSource has things to do on the reactor's thread: an endpoint, above all.
class EventSource {
 public:
  virtual ~EventSource() = default;
  /// Handles what is ready, without waiting. True when anything was.
  virtual bool poll() = 0;
  /// A descriptor that becomes readable when poll() has something to do; -1 when there is none.
  virtual int fd() const = 0;
  /// Asked before the reactor sleeps: false when poll() must be called again first (fi_trywait(3)).
  virtual bool may_sleep() = 0;
  /// The longest sleep that is allowed now, for sources whose progress no descriptor announces.
  virtual Duration sleep_max() const { return Duration::max(); }
};

/// A TimerId names one scheduled call. Default constructed: none.
struct TimerId {
  Time at{};
  std::uint64_t sequence = 0;
  auto operator<=>(const TimerId&) const = default;
  explicit operator bool() const { return sequence != 0; }
};

/// A Reactor runs everything of one thread: event sources, timers, and calls posted by others.
///
/// Owns: timers and posted calls; not the sources.
/// Threads: all functions but post() and stop() belong to the thread that calls run_once().
/// Limits: kReactorPostsMax posted calls wait at most; post() then answers kBusy.
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

  /// Calls `call` once when `at` has come. Never from within schedule_at itself.
  TimerId schedule_at(Time at, std::function<void()> call);
  TimerId schedule_after(Duration delay, std::function<void()> call);
  /// Forgets the call. A timer that has fired already, or none, is no error.
  void cancel(TimerId timer);
  /// When the next timer is due; nothing scheduled: Time::max().
  Time next_timer() const;

  /// Runs `call` on the reactor's thread, soon, in the order of the posts. Any thread.
  Status post(std::function<void()> call);

  /// One turn: sources, posted calls, due timers; sleeps at most `wait_max` when none had work.
  /// True when anything was done.
  bool run_once(Duration wait_max);
  /// Turns until stop() was called.
  void run();
  void stop();  ///< any thread, and signal handlers
  void resume() { stopped_.store(false, std::memory_order_relaxed); }  ///< run() runs again
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
  std::mutex posts_mutex_;
  std::vector<std::function<void()>> posts_;
  std::vector<std::function<void()>> posts_running_;
  std::atomic<bool> asleep_{false};
  std::atomic<bool> stopped_{false};
};

}  // namespace stdchk
