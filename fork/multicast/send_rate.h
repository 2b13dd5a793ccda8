#pragma once

#include <cstddef>

#include "core/base/clock.h"

namespace stdchk::multicast {

/// A SendRate says how many bytes may be sent now, and adapts to the network. Rates are bytes a
/// second.
///
/// The rate grows by a step each 10 ms while there is something to send, and falls by back_off(). A
/// quarter of it may go to receivers that are served by unicast.
///
/// Not: a RateLimiter of core/base, which lends bytes before the rate has covered them, and which
/// reserves no share for unicast. Not aware of receivers. Pure: times come from the caller and never
/// go back.
class SendRate {
 public:
  struct Limits {
    double start = 0;
    double least = 0;
    double most = 0;
  };

  explicit SendRate(const Limits& limits) : limits_(limits), rate_(limits.start) {}

  /// Adds the credit of the time since the last call. `is_waiting`: cells for all wait, so the rate
  /// may grow.
  void advance(Time now, bool is_waiting);
  bool allows(double bytes) const { return credit_ >= bytes; }
  /// Returns false when receivers that are served by unicast have used their share of the rate.
  bool allows_unicast(double bytes) const { return unicast_credit_ >= bytes; }
  /// Returns the earliest time to send `bytes`, if no other bytes are sent before.
  Time time_of(Time now, double bytes) const;
  void spend_on_all(double bytes);
  void spend_on_one(double bytes);

  /// Lowers the rate to 3/4 of `mean`, the mean rate of receivers. If the present rate is less, or
  /// `mean` is 0, lowers it to 3/4 of the present rate. Lowers the rate at most once in `interval`.
  /// Returns true if it has lowered the rate.
  bool back_off(Time now, double mean, Duration interval);

  double rate() const { return rate_; }
  /// Returns the smoothed rate of the bytes that are sent to all receivers.
  double sent() const { return sent_rate_; }
  /// True when the rate limits the sender. Otherwise the sender waits for asks.
  bool is_used() const { return sent_rate_ >= rate_ / 2; }

 private:
  const Limits limits_;
  double rate_;
  double credit_ = 0;          ///< bytes that may be sent now
  double unicast_credit_ = 0;  ///< the part of `credit_` for unicast
  Time advanced_{};
  Time raised_{};
  Time backed_off_{};
  Time measured_{};
  double sent_bytes_ = 0;  ///< to all, since measured_
  double sent_rate_ = 0;
};

}  // namespace stdchk::multicast
