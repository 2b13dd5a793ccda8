#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "core/base/clock.h"
#include "core/base/rate_limiter.h"
#include "core/messages/messages.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A CopyTraffic limits what benefactors copy and compute at once. It counts bytes in flight, of
/// copies and of parity, for each benefactor as source or target.
///
/// Threads: the reactor's.
/// Limits: kBytesBusy in flight to each benefactor while clients write, otherwise kBytesIdle. The
/// pool's copy rate applies, with bursts of half a second.
class CopyTraffic {
 public:
  /// How exposed a chunk is: the lower, the more exposed.
  using Rank = std::uint8_t;
  /// A chunk of a smaller rank has its last copies on benefactors that leave. The copy rate does
  /// not apply to it, because a benefactor leaves only after all its chunks are elsewhere.
  static constexpr Rank kRankSole = 2;

  /// Calls `on_paced` when the copy rate allows a benefactor the next request.
  CopyTraffic(Pool& pool, const SessionTable& sessions, std::function<void()> on_paced)
      : pool_(pool), sessions_(sessions), on_paced_(std::move(on_paced)) {}

  /// Returns true when the benefactor is alive and has room.
  bool can_take(BenefactorId id, std::uint64_t bytes, Rank rank) const;
  /// Returns true when the benefactor may get another request now.
  bool is_free(BenefactorId id, Rank rank) const;
  /// Bytes in flight to and from the benefactor.
  std::uint64_t load(BenefactorId id) const {
    const auto found = load_.find(id);
    return found == load_.end() ? 0 : found->second;
  }
  void add_load(BenefactorId id, std::uint64_t bytes) { load_[id] += bytes; }
  void take_load(BenefactorId id, std::uint64_t bytes) { load_[id] -= bytes; }
  /// Delays further requests to `target` by the time that `bytes` take at the copy rate.
  void pace(BenefactorId target, std::uint64_t bytes);
  /// Gives the benefactor no work for 2 s.
  void park(BenefactorId id);
  /// Returns the client id under which `target` attaches to other benefactors.
  ClientId reader(BenefactorId target);
  /// Sets the request's client id to reader(target), and adds its tickets.
  void let_read(BenefactorId target, msg::BuildStripe& request);
  void add_source(msg::BuildStripe& request, std::uint32_t number, const Chunk& chunk,
                  const Extent& at) const;

 private:
  Pool& pool_;
  const SessionTable& sessions_;
  const std::function<void()> on_paced_;
  std::map<BenefactorId, std::uint64_t> load_;
  std::map<BenefactorId, RateLimiter> limiters_;  ///< of targets, at the copy rate
  std::map<BenefactorId, Time> parked_;
  std::map<BenefactorId, ClientId> readers_;  ///< ids under which benefactors attach to others
};

}  // namespace stdchk::manager
