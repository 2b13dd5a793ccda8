#include "manager/drain/drain_pace.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// The rate for each benefactor while the drain yields to writers.
constexpr std::uint64_t kYieldBytesPerSecond = 8 * limits::kMiB;
constexpr Duration kWritesFor = 10s;    ///< a writer asks for space again within this time
constexpr Duration kAskedFor = 1s;      ///< a waiting client asks again within this time
constexpr Duration kPaceHolds = 300ms;  ///< longer than the interval between turns

}  // namespace

// After a late turn, up to kPaceHolds of unused rate may be caught up.
DrainPace::DrainPace(const Pool& pool, const SessionTable& sessions)
    : pool_(pool), sessions_(sessions), limiter_(0, kPaceHolds) {}

bool DrainPace::set_when_due() {
  if (pool_.now() < next_) return false;
  set();
  return true;
}

void DrainPace::stop_yielding() {
  asked_until_ = pool_.now() + kAskedFor;
  next_ = {};
}

/// Returns true when undrained bytes, which cannot be evicted, take more than half of `bytes`.
bool DrainPace::is_half_full(std::uint64_t bytes) const {
  std::uint64_t undrained = 0;
  for (const auto& [sequence, id] : pool_.state().commits().undrained()) {
    undrained += pool_.state().file(id)->newest.stored_bytes;
    if (2 * undrained > bytes) return true;
  }
  return false;
}

void DrainPace::set() {
  next_ = pool_.now() + kPaceHolds;
  const Config& config = pool_.config();
  at_once_ = kPerBenefactor;
  limiter_.set_rate(config.drain_total_bytes_per_s);
  if (!config.drain_yields || pool_.now() < asked_until_) return;
  // A client that has files open but does not write is not hindered by the drain.
  if (!sessions_.writing() || pool_.now() >= sessions_.granted_last() + kWritesFor) return;
  std::uint64_t bytes = 0;
  std::uint64_t share = 0;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.peer == nullptr) continue;
    bytes += status.info.arena_bytes;
    share += kYieldBytesPerSecond;
  }
  if (is_half_full(bytes)) return;
  at_once_ = 1;
  const std::uint64_t rate = config.drain_total_bytes_per_s;
  limiter_.set_rate(rate == 0 ? share : std::min(rate, share));
}

bool DrainPace::pay(std::uint64_t bytes) {
  if (!limiter_.is_free(pool_.now())) return false;
  limiter_.reserve(bytes, pool_.now());
  return true;
}

}  // namespace stdchk::manager
