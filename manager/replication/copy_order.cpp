#include "manager/replication/copy_order.h"

#include <algorithm>

#include "core/policy/copy_scatter.h"

namespace stdchk::manager {
namespace {

constexpr unsigned kFailuresMax = 3;

}  // namespace

const std::vector<BenefactorId>& CopyOrder::scattered(BenefactorId primary) {
  const auto [found, added] = scattered_.try_emplace(primary);
  if (!added) return found->second;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (id != primary && !status.info.addresses.empty()) found->second.push_back(id);
  }
  std::sort(found->second.begin(), found->second.end(),
            [&](BenefactorId a, BenefactorId b) { return precedes_as_copy_target(primary, a, b); });
  return found->second;
}

std::vector<BenefactorId> CopyOrder::whole(BenefactorId primary) {
  std::vector<BenefactorId> out = whole_[primary];
  for (const BenefactorId id : scattered(primary)) {
    if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
  }
  std::stable_partition(out.begin(), out.end(), [&](BenefactorId id) {
    const auto failed = failures_.find({primary, id});
    return failed == failures_.end() || failed->second < kFailuresMax;
  });
  return out;
}

void CopyOrder::note_copied(BenefactorId source, BenefactorId target, bool good) {
  if (good) {
    failures_.erase({source, target});
  } else {
    ++failures_[{source, target}];
  }
}

void CopyOrder::note_whole(BenefactorId primary, BenefactorId holder) {
  std::vector<BenefactorId>& holders = whole_[primary];
  if (std::find(holders.begin(), holders.end(), holder) == holders.end()) {
    holders.push_back(holder);
  }
}

void CopyOrder::benefactors_changed() {
  scattered_.clear();
  failures_.clear();
  const auto has_gone = [this](BenefactorId id) {
    const auto found = pool_.benefactors().find(id);
    return found == pool_.benefactors().end() || found->second.leaving ||
           found->second.info.state == msg::BenefactorState::kGone;
  };
  for (auto& [primary, holders] : whole_) std::erase_if(holders, has_gone);
  std::erase_if(whole_, [](const auto& each) { return each.second.empty(); });
}

}  // namespace stdchk::manager
