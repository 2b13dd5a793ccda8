#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/units.h"

namespace stdchk {

/// A ManagerAddresses is where the pool's manager may be, at its own address or at its standby's,
/// and when it is to be asked again.
///
/// Threads: one.
class ManagerAddresses {
 public:
  /// One address, or several with commas, the likeliest first. Never is one waited for longer than
  /// `wait_max`.
  ManagerAddresses(const std::string& list, Duration wait_max)
      : all_(split(list, ',')), wait_max_(wait_max) {
    if (all_.empty()) all_.emplace_back();
  }

  const std::string& current() const { return all_[at_]; }
  /// Since somebody answered last, one was tried in vain.
  bool failing() const { return wait_ > Duration::zero(); }
  /// The current one has taken us.
  void answered() { wait_ = Duration::zero(); }
  /// The current one's link was lost: after how long it is to be asked again.
  Duration again() {
    wait_ = std::clamp(wait_, kSoon, wait_max_);
    return kSoon;
  }
  /// The current one did not take us: goes on to the next one, which is to be asked soon. After a
  /// round in which nobody did, the wait is twice as long as the one before.
  Duration next() {
    at_ = (at_ + 1) % all_.size();
    if (++tried_ % all_.size() != 0) return again();
    wait_ = std::clamp(wait_ * 2, kSoon, wait_max_);
    return wait_;
  }

 private:
  static constexpr Duration kSoon = std::chrono::milliseconds(50);

  std::vector<std::string> all_;
  std::size_t at_ = 0;
  std::size_t tried_ = 0;
  Duration wait_max_;
  Duration wait_{};
};

}  // namespace stdchk
