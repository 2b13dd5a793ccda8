#include "manager/drain/drain_load.h"

#include <algorithm>
#include <chrono>

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

std::uint32_t count_at(const std::map<BenefactorId, std::uint32_t>& counts, BenefactorId id) {
  const auto found = counts.find(id);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

Duration drain_deadline(const Pool& pool, std::uint64_t bytes) {
  Duration deadline = limits::kOperationDeadline;
  const std::uint64_t rate = pool.config().pool.drain_rate_bytes_per_s;
  // Requests at one benefactor share its rate, and each piece is written and read back.
  if (rate > 0) {
    deadline += std::chrono::seconds(std::min<std::uint64_t>(86400, 4 * bytes / rate + 1));
  }
  return deadline;
}

bool DrainLoad::is_usable(BenefactorId benefactor) const {
  const auto parked = parked_.find(benefactor);
  return pool_.peer_of(benefactor) != nullptr &&
         (parked == parked_.end() || parked->second <= pool_.now());
}

bool DrainLoad::has_room(BenefactorId benefactor, bool hangs, std::uint32_t at_once) const {
  return hangs ? count_at(hanging_, benefactor) < kHangingMax
               : count_at(in_flight_, benefactor) < at_once;
}

bool DrainLoad::is_stuck(const DrainRequest& request) const {
  if (!request.sent || request.answered || request.hangs) return false;
  const Duration by_rate = drain_deadline(pool_, request.bytes) - limits::kOperationDeadline;
  const auto took = took_.find(request.benefactor);
  const Duration last = took == took_.end() ? Duration{} : took->second;
  const Duration patience = std::max(kHangsAfter + by_rate, kHangsAfterFactor * last);
  return pool_.now() >= request.sent_at + patience &&
         count_at(hanging_, request.benefactor) < kHangingMax;
}

void DrainLoad::hangs(DrainRequest& request) {
  --count_of(request);
  request.hangs = true;
  ++count_of(request);
}

void DrainLoad::answered(const DrainRequest& request) {
  took_[request.benefactor] = pool_.now() - request.sent_at;
}

}  // namespace stdchk::manager
