#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/base/back_off.h"
#include "core/base/clock.h"
#include "core/base/units.h"

namespace stdchk {

/// A ManagerAddresses holds the addresses where the pool's manager may be, its own and its
/// standby's. It decides which address to ask next, and after what wait.
///
/// Threads: one.
class ManagerAddresses {
 public:
  /// `list` is one address, or several with commas, the likeliest first. No wait is longer than
  /// `wait_max`.
  ManagerAddresses(const std::string& list, Duration wait_max)
      : all_(split(list, ',')), back_off_(kSoon, wait_max) {
    if (all_.empty()) all_.emplace_back();
  }

  const std::string& current() const { return all_[at_]; }
  /// Returns true when an attempt has failed since the last answer.
  bool failing() const { return back_off_.is_failing(); }
  /// The manager at the current address has accepted us.
  void answered() { back_off_.reset(); }
  /// The link to the current address was lost. Returns the wait before asking it again.
  Duration delay_before_retry() { return back_off_.retry_soon(); }
  /// The current address did not accept us: moves to the next address. Returns the wait before
  /// asking it: 50 ms, or after a whole round without success twice the last such wait.
  Duration next() {
    at_ = (at_ + 1) % all_.size();
    if (++tried_ % all_.size() != 0) return delay_before_retry();
    return back_off_.next();
  }

 private:
  static constexpr Duration kSoon = std::chrono::milliseconds(50);

  std::vector<std::string> all_;
  std::size_t at_ = 0;
  std::size_t tried_ = 0;
  BackOff back_off_;
};

}  // namespace stdchk
