#include "manager/replication/copy_traffic.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kBytesBusy = 4 * limits::kMiB;
constexpr std::uint64_t kBytesIdle = 32 * limits::kMiB;
constexpr Duration kParked = 2s;
constexpr std::uint64_t kReserve = 16;  // 1/16 of an arena stays free for new writes

}  // namespace

bool CopyTraffic::can_take(BenefactorId id, std::uint64_t bytes, Rank rank) const {
  const BenefactorStatus& status = pool_.benefactors().at(id);
  if (status.info.state != msg::BenefactorState::kAlive || status.peer == nullptr ||
      status.leaving || !pool_.space().usable(id)) {
    return false;
  }
  const std::uint64_t reserve = rank < kRankSole ? 0 : status.info.arena_bytes / kReserve;
  return pool_.space().free_bytes(id) >= bytes + reserve && pool_.space().largest(id) >= bytes;
}

bool CopyTraffic::is_free(BenefactorId id, Rank rank) const {
  const auto parked = parked_.find(id);
  if (parked != parked_.end() && pool_.now() < parked->second) return false;
  const auto limiter = limiters_.find(id);
  if (rank >= kRankSole && limiter != limiters_.end() && !limiter->second.is_free(pool_.now())) {
    return false;
  }
  std::uint64_t most = sessions_.writing() ? kBytesBusy : kBytesIdle;
  const std::uint64_t rate = pool_.config().copy_rate_bytes_per_s;
  if (rate > 0 && rank >= kRankSole) most = std::min(most, rate / 2 + 1);
  return load(id) < most;
}

ClientId CopyTraffic::reader(BenefactorId target) {
  ClientId& reader = readers_[target];
  if (!reader) reader = ClientId{pool_.next_id()};
  return reader;
}

void CopyTraffic::let_read(BenefactorId target, msg::BuildStripe& request) {
  request.client = reader(target);
  for (msg::BenefactorInfo& source : request.sources) {
    source = pool_.source(source.id, target, request.client);
  }
}

void CopyTraffic::pace(BenefactorId target, std::uint64_t bytes) {
  const std::uint64_t rate = pool_.config().copy_rate_bytes_per_s;
  if (rate == 0) return;
  RateLimiter& limiter = limiters_.try_emplace(target, rate, Duration::zero()).first->second;
  const Time until = pool_.now() + limiter.reserve(bytes, pool_.now());
  pool_.reactor().schedule_at(until, [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    on_paced_();
  });
}

void CopyTraffic::park(BenefactorId id) { parked_[id] = pool_.now() + kParked; }

void CopyTraffic::add_source(msg::BuildStripe& request, std::uint32_t number, const Chunk& chunk,
                             const Extent& at) const {
  auto& sources = request.sources;
  const auto found = std::find_if(sources.begin(), sources.end(),
                                  [&](const auto& one) { return one.id == at.benefactor; });
  const auto index = static_cast<std::uint32_t>(found - sources.begin());
  if (found == sources.end()) sources.push_back(pool_.benefactors().at(at.benefactor).info);
  request.inputs.push_back({number, index, at.offset, chunk.length, chunk.crc});
}

}  // namespace stdchk::manager
