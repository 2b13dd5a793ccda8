#include "manager/pool/failure_domains.h"

#include <algorithm>
#include <string_view>

namespace stdchk::manager {
namespace {

/// FNV-1a followed by a mixer: the result survives restarts of the manager.
FailureDomains::Domain domain_of(std::string_view text) {
  std::uint64_t x = 0xCBF29CE484222325ULL;
  for (const char c : text) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

void FailureDomains::update(const std::map<BenefactorId, BenefactorStatus>& benefactors) {
  domains_.clear();
  for (auto& level : lending_) level.clear();
  for (const auto& [id, status] : benefactors) {
    auto& domains = domains_[id];
    const Topology::Place* const listed = topology_.find(status.info.host_name);
    const Topology::Place place = listed == nullptr ? Topology::Place{} : *listed;
    domains[kSwitch] = domain_of("switch " + place.switch_name);
    domains[kRack] = domain_of("rack " + place.rack);
    // After a restart the host of a benefactor is unknown until the benefactor registers again.
    // Until then a benefactor counts as alone on its host; otherwise all would seem to share a
    // host.
    domains[kHost] = status.info.addresses.empty() && place.node.empty()
                         ? domain_of("host of " + std::to_string(id.value))
                         : node_of(status.info.host_name, status.info.host_token);
    domains[kBenefactor] = domain_of(std::to_string(id.value));
    if (status.info.state != msg::BenefactorState::kAlive || status.leaving) continue;
    for (std::size_t level = 0; level < kLevels; ++level) {
      lending_[level].push_back(domains[level]);
    }
  }
  for (auto& level : lending_) {
    std::sort(level.begin(), level.end());
    level.erase(std::unique(level.begin(), level.end()), level.end());
  }
}

FailureDomains::Domain FailureDomains::node_of(const std::string& host_name,
                                               const std::string& host_token) const {
  const Topology::Place* const listed = topology_.find(host_name);
  const bool has_node = listed != nullptr && !listed->node.empty();
  return std::max<Domain>(domain_of(has_node ? "node " + listed->node : "host " + host_token), 1);
}

FailureDomains::Level FailureDomains::level_for(std::size_t needed) const {
  for (std::size_t level = 0; level < kBenefactor; ++level) {
    if (lending_[level].size() >= needed) return static_cast<Level>(level);
  }
  return kBenefactor;
}

FailureDomains::Domain FailureDomains::domain(BenefactorId id, Level level) const {
  const auto found = domains_.find(id);
  return found == domains_.end() ? 0 : found->second[level];
}

std::size_t FailureDomains::distance(Domain a, Domain b, Level level) const {
  const auto& circle = lending_[level];
  const auto at = [&](Domain one) {
    return static_cast<std::size_t>(std::lower_bound(circle.begin(), circle.end(), one) -
                                    circle.begin());
  };
  const std::size_t apart = at(a) > at(b) ? at(a) - at(b) : at(b) - at(a);
  return std::min(apart, circle.size() - std::min(circle.size(), apart));
}

}  // namespace stdchk::manager
