#pragma once

#include <cstdint>

#include "core/base/clock.h"
#include "core/base/rate_limiter.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A DrainPace says how much the drain may do at once. With drain_yields it does little while
/// clients write and nobody waits for the drain, unless memory fills up.
///
/// Threads: the reactor's.
class DrainPace {
 public:
  /// Limit of requests in flight to each benefactor, unless the drain yields.
  static constexpr std::uint32_t kPerBenefactor = 3;
  DrainPace(const Pool& pool, const SessionTable& sessions);
  /// Sets the pace again when that is due, about every 300 ms. Returns true then.
  bool set_when_due();
  /// A client waits for the drain: for the next second the drain does not yield to writers.
  void stop_yielding();
  /// Limit of requests in flight to each benefactor.
  std::uint32_t at_once() const { return at_once_; }
  /// Returns false when the rate of all benefactors together does not allow `bytes` more yet.
  bool pay(std::uint64_t bytes);

 private:
  void set();
  bool is_half_full(std::uint64_t bytes) const;

  const Pool& pool_;
  const SessionTable& sessions_;
  Time asked_until_{};  ///< until then a client waits for the drain
  Time next_{};         ///< when to set the pace again
  std::uint32_t at_once_ = kPerBenefactor;
  RateLimiter limiter_;  ///< of all benefactors together
};

}  // namespace stdchk::manager
