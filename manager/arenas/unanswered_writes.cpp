#include "manager/arenas/unanswered_writes.h"

#include <utility>

#include "core/base/limits.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kAgain = 2s;

}  // namespace

void UnansweredWrites::add(BenefactorId benefactor, std::vector<Range> ranges) {
  lost_[++made_] = {benefactor, std::move(ranges), {}};
}

void UnansweredWrites::ask() {
  for (auto& [number, lost] : lost_) {
    rpc::Peer* const peer = pool_.peer_of(lost.benefactor);
    if (peer == nullptr || pool_.now() < lost.next) continue;
    lost.next = pool_.now() + limits::kOperationDeadline + kAgain;
    peer->call(later_, limits::kOperationDeadline,
               [this, key = number, alive = pool_.alive()](const rpc::Answer& answer) {
                 if (!alive.expired()) answered(key, answer.has_value());
               });
  }
}

void UnansweredWrites::answered(std::uint64_t number, bool good) {
  const auto found = lost_.find(number);
  if (found == lost_.end()) return;
  found->second.next = pool_.now() + kAgain;
  if (!good) return;
  const Lost lost = std::move(found->second);
  lost_.erase(found);
  for (const Range& range : lost.ranges) pool_.space().release(lost.benefactor, range);
}

}  // namespace stdchk::manager
