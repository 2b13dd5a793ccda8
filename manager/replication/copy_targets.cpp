#include "manager/replication/copy_targets.h"

#include <algorithm>
#include <utility>

#include "core/policy/copy_scatter.h"

namespace stdchk::manager {

/// Returns all benefactors, by their distance from that domain on the circle.
std::vector<BenefactorId> CopyTargets::near(FailureDomains::Domain domain,
                                            FailureDomains::Level level) const {
  const FailureDomains& domains = pool_.domains();
  std::vector<std::pair<std::size_t, BenefactorId>> sorted;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.info.addresses.empty()) continue;
    sorted.emplace_back(domains.distance(domains.domain(id, level), domain, level), id);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<BenefactorId> out;
  out.reserve(sorted.size());
  for (const auto& [distance, id] : sorted) out.push_back(id);
  return out;
}

std::optional<BenefactorId> CopyTargets::choose(const CopyView& view, std::uint64_t bytes,
                                                Rank rank, bool now_only) {
  std::optional<BenefactorId> target;
  for (const BenefactorId id : all(view, bytes, rank)) {
    if (now_only && !traffic_.is_free(id, rank)) continue;
    if (!target || traffic_.load(id) < traffic_.load(*target)) target = id;
  }
  return target;
}

std::vector<BenefactorId> CopyTargets::besides(const std::vector<BenefactorId>& held,
                                               std::uint32_t wanted, std::uint64_t bytes,
                                               const std::vector<BenefactorId>& left_out,
                                               bool whole) {
  CopyView view;
  view.whole = whole;
  for (const BenefactorId id : held) {
    if (pool_.benefactors().count(id) == 0) return {};
    view.good.push_back({id, 0});
  }
  if (held.empty()) return {};
  view.level = pool_.domains().level_for(wanted);
  view.left_out = left_out;
  return all(view, bytes, 0);
}

/// Returns the benefactors that may get a copy.
std::vector<BenefactorId> CopyTargets::all(const CopyView& view, std::uint64_t bytes, Rank rank) {
  const FailureDomains& domains = pool_.domains();
  // If there are fewer domains than copies, the copies must use all domains.
  for (std::size_t i = 0; i < view.level && view.avoided.empty(); ++i) {
    const auto level = static_cast<FailureDomains::Level>(i);
    std::set<FailureDomains::Domain> taken;
    for (const Extent& copy : view.good) taken.insert(domains.domain(copy.benefactor, level));
    if (taken.empty() || taken.size() >= domains.count(level)) continue;
    auto found = at_level(view, level, bytes, rank);
    if (!found.empty()) return found;
  }
  return at_level(view, view.level, bytes, rank);
}

/// Returns targets in domains of that level without a copy.
std::vector<BenefactorId> CopyTargets::at_level(const CopyView& view, FailureDomains::Level level,
                                                std::uint64_t bytes, Rank rank) {
  const FailureDomains& domains = pool_.domains();
  const Extent& primary = view.good.empty() ? view.bad.back() : view.good.front();
  std::set<FailureDomains::Domain> never = view.avoided;
  if (!view.good.empty()) never.insert(domains.domain(primary.benefactor, level));
  std::set<FailureDomains::Domain> taken = never;
  for (const Extent& copy : view.good) taken.insert(domains.domain(copy.benefactor, level));
  std::vector<BenefactorId> found;
  const auto can = [&](BenefactorId id) {
    return std::ranges::count(view.left_out, id) == 0 && traffic_.can_take(id, bytes, rank);
  };
  const auto has_copy = [&](BenefactorId id) {
    return std::ranges::find(view.good, id, &Extent::benefactor) != view.good.end();
  };
  const auto consider = [&](BenefactorId id) {
    if (can(id) && taken.count(domains.domain(id, level)) == 0) found.push_back(id);
  };
  // A wrong copy may be replaced in place: this place suits the good copies already.
  for (const Extent& copy : view.bad) {
    if (pool_.is_wrong(copy) && pool_.benefactors().count(copy.benefactor) > 0) {
      consider(copy.benefactor);
    }
  }
  if (view.whole && view.avoided.empty()) {
    // All chunks of the image wait for the first benefactor in this order, even if it is busy.
    for (const BenefactorId id : order_.whole(primary.benefactor)) {
      if (!found.empty()) break;
      consider(id);
    }
    return found;
  }
  // Blocks of stripes go near each other, so that few groups of benefactors share stripes.
  const auto others = view.avoided.empty() ? order_.scattered(primary.benefactor)
                                           : near(*view.avoided.begin(), level);
  // Considers the same few, whichever of them have a copy already.
  std::size_t considered = 0;
  for (const BenefactorId id : others) {
    if (considered >= kCopyScatter && !found.empty()) break;
    if (never.count(domains.domain(id, level)) > 0) continue;
    if (!has_copy(id) && !can(id)) continue;
    ++considered;
    consider(id);
  }
  return found;
}

}  // namespace stdchk::manager
