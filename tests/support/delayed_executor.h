#pragma once

#include <algorithm>
#include <deque>
#include <functional>

#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/runtime/reactor.h"

namespace stdchk::sim {

/// A DelayedExecutor runs work one after the other on a reactor, each after a virtual delay.
///
/// Threads: the reactor's. Not: completed by the destructor, which drops waiting work.
class DelayedExecutor final : public Executor {
 public:
  DelayedExecutor(Reactor& reactor, std::uint64_t seed) : reactor_(reactor), prng_(seed) {}
  ~DelayedExecutor() override { clear(); }
  DelayedExecutor(const DelayedExecutor&) = delete;
  DelayedExecutor& operator=(const DelayedExecutor&) = delete;

  /// Draws delays up to `usual`, and once in `rare` up to `longest`. The latter only if no earlier
  /// work ends later: callers that repeat after a deadline would otherwise never reach the queue's
  /// end. Zero: no delay.
  void set_delays(Duration usual, Duration longest, std::uint64_t rare) {
    usual_ = usual;
    longest_ = longest;
    rare_ = rare;
  }
  void run(std::function<void()> work) override {
    Duration delay{};
    if (usual_ > Duration::zero()) {
      const bool slow =
          rare_ > 0 && prng_.chance(1, rare_) && free_at_ < reactor_.clock().now() + longest_;
      slow_ += slow ? 1 : 0;
      const Duration most = slow ? longest_ : usual_;
      delay = Duration(
          static_cast<std::int64_t>(prng_.below(static_cast<std::uint64_t>(most.count()))));
    }
    free_at_ = std::max(free_at_, reactor_.clock().now()) + delay;
    waiting_.push_back(std::move(work));
    reactor_.schedule_at(free_at_, [this, alive = lifetime_.watch()] {
      if (alive.expired() || waiting_.empty()) return;
      const auto next = std::move(waiting_.front());
      waiting_.pop_front();
      next();
    });
  }
  /// How many pieces of work drew a delay of up to `longest`.
  std::uint64_t slow() const { return slow_; }
  void clear() {
    waiting_.clear();
    lifetime_.renew();
  }

 private:
  Reactor& reactor_;
  Prng prng_;
  Duration usual_{};
  Duration longest_{};
  std::uint64_t rare_ = 0;
  std::uint64_t slow_ = 0;
  Time free_at_{};
  std::deque<std::function<void()>> waiting_;
  Lifetime lifetime_;
};

}  // namespace stdchk::sim
