#include "manager/space/lost_targets.h"

#include <utility>

#include "core/base/limits.h"
#include "manager/service/service.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kAgain = 2s;

}  // namespace

void LostTargets::add(BenefactorId benefactor, std::vector<Range> ranges) {
  lost_[++made_] = {benefactor, std::move(ranges), {}};
}

void LostTargets::ask() {
  for (auto& [number, lost] : lost_) {
    rpc::Peer* const peer = service_.peer_of(lost.benefactor);
    if (peer == nullptr || service_.now() < lost.next) continue;
    lost.next = service_.now() + limits::kOperationDeadline + kAgain;
    peer->call(later_, limits::kOperationDeadline,
               [this, key = number, alive = service_.alive()](const rpc::Answer& answer) {
                 if (!alive.expired()) answered(key, answer.has_value());
               });
  }
}

void LostTargets::answered(std::uint64_t number, bool good) {
  const auto found = lost_.find(number);
  if (found == lost_.end()) return;
  found->second.next = service_.now() + kAgain;
  if (!good) return;
  const Lost lost = std::move(found->second);
  lost_.erase(found);
  for (const Range& range : lost.ranges) service_.space().give(lost.benefactor, range);
}

}  // namespace stdchk::manager
