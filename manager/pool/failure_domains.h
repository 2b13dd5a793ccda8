#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/topology.h"
#include "core/values/types.h"
#include "manager/pool/benefactor_status.h"

namespace stdchk::manager {

/// FailureDomains says which benefactors are likely to fail together. Each level divides the
/// benefactors into domains. Copies of a chunk, and blocks of a stripe, go to different domains of
/// the widest level that has enough of them.
///
/// Threads: one.
class FailureDomains {
 public:
  /// From the widest to the narrowest.
  enum Level : std::uint8_t { kSwitch, kRack, kHost, kBenefactor };
  static constexpr std::size_t kLevels = 4;
  /// Benefactors with equal values are in the same domain. The value is a hash of the domain's
  /// name, so it survives restarts.
  using Domain = std::uint64_t;

  explicit FailureDomains(Topology topology = {}) : topology_(std::move(topology)) {}
  /// Replaces the known benefactors. Only those that are alive and not leaving count as lending.
  void update(const std::map<BenefactorId, BenefactorStatus>& benefactors);
  /// Returns the widest level with at least `needed` lending domains, or
  /// kBenefactor when there is none.
  Level level_for(std::size_t needed) const;
  std::size_t count(Level level) const { return lending_[level].size(); }
  Domain domain(BenefactorId id, Level level) const;
  /// Returns the domain on level kHost of any host, also of one without benefactors. Never 0.
  Domain node_of(const std::string& host_name, const std::string& host_token) const;
  /// The lending domains in a circular order. Stripes use neighbours on this circle, so few groups
  /// of domains share stripes, and each domain is in equally many groups.
  const std::vector<Domain>& circle(Level level) const { return lending_[level]; }
  /// The number of steps between two domains on that circle, the shorter way round.
  std::size_t distance(Domain a, Domain b, Level level) const;

 private:
  const Topology topology_;
  std::map<BenefactorId, std::array<Domain, kLevels>> domains_;
  std::array<std::vector<Domain>, kLevels> lending_;
};

}  // namespace stdchk::manager
