#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

/// An AskPace measures rate, delay and losses, for the asks of a Receiver or a Demand. It says when
/// to look for late units, and when to send an ask that wants nothing. Pure.
///
/// Threads: one. Times never go back.
class AskPace {
 public:
  /// Between two looks for late units.
  static constexpr Duration kLook = std::chrono::milliseconds(5);
  /// An ask is sent at least this often, so that the sender knows of this receiver.
  static constexpr Duration kAlive = std::chrono::milliseconds(500);
  /// The longest time until a unit is late.
  static constexpr Duration kLateMost = std::chrono::milliseconds(250);

  void note_bytes(std::size_t bytes) { bytes_ += static_cast<double>(bytes); }
  /// Notes the time from an ask to its first cell. Repeated asks do not measure this delay.
  void note_delay(Duration took) {
    delay_ = delay_ == Duration{} ? took : delay_ + (took - delay_) / 8;
  }
  void note_lost(std::uint32_t cells) { lost_ += cells; }
  /// Computes the rate anew every 20 ms.
  void measure(Time now);

  /// Bytes a second.
  double rate() const { return rate_; }
  /// A unit is late after `delays` delays, but not before `least`.
  Duration patience(int delays, Duration least) const {
    return std::clamp<Duration>(delay_ * delays, least, kLateMost);
  }
  bool is_silent(Time now) const { return now - asked_ >= kAlive; }
  /// Fills in the report of an ask that is sent now.
  void report(Time now, Ask& ask);

 private:
  Duration delay_{};        ///< from an ask to its first cell
  std::uint32_t lost_ = 0;  ///< cells, since the last ask
  double bytes_ = 0;        ///< since measured_
  double rate_ = 0;
  Time measured_{};
  Time asked_{};
};

}  // namespace stdchk::multicast
