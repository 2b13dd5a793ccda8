#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/clock.h"

namespace stdchk::client {

/// A RateMeter measures the rate of transfers to one peer: bytes of successful transfers, over the
/// time with at least one transfer in flight.
///
/// Threads: one at a time.
class RateMeter {
 public:
  static constexpr Duration kMeasured =
      std::chrono::milliseconds(20);  ///< the least time for a rate

  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  std::uint64_t bytes_per_s() const { return bytes_per_s_; }  ///< 0: not measured yet

  void started(std::uint64_t bytes, Time now) {
    if (bytes_in_flight_ == 0) {
      measured_from_ = now;
      bytes_moved_ = 0;
    }
    bytes_in_flight_ += bytes;
  }

  void ended(std::uint64_t bytes, bool good, Time now) {
    bytes_in_flight_ -= std::min(bytes_in_flight_, bytes);
    if (!good) return;
    bytes_moved_ += bytes;
    const Duration took = now - measured_from_;
    if (took < kMeasured) return;
    const double seconds = std::chrono::duration<double>(took).count();
    const auto rate = static_cast<std::uint64_t>(static_cast<double>(bytes_moved_) / seconds);
    bytes_per_s_ = bytes_per_s_ == 0 ? rate : (3 * bytes_per_s_ + rate) / 4;
    bytes_moved_ = 0;
    measured_from_ = now;
  }

  /// Forgets the transfers in flight, because their link has ended. The measured rate stays.
  void reset() { bytes_in_flight_ = 0; }

 private:
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t bytes_moved_ = 0;  ///< since `measured_from_`
  Time measured_from_{};
  std::uint64_t bytes_per_s_ = 0;
};

}  // namespace stdchk::client
