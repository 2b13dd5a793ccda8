#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/topology.h"
#include "core/types.h"

namespace stdchk::manager {

struct BenefactorStatus;

/// FailureDomains say which benefactors fail together. On each level two are in the same domain or
/// in different ones; copies of a chunk, and blocks of a stripe, go to different domains of the
/// widest level that has enough of them.
///
/// Threads: one.
class FailureDomains {
 public:
  /// From the widest to the narrowest.
  enum Level : std::uint8_t { kSwitch, kRack, kHost, kBenefactor };
  static constexpr std::size_t kLevels = 4;
  /// Equal numbers: the same domain. In an order of its own that is the same in every life.
  using Domain = std::uint64_t;

  explicit FailureDomains(Topology topology = {}) : topology_(std::move(topology)) {}
  /// Who is there, and who lends.
  void update(const std::map<BenefactorId, BenefactorStatus>& benefactors);
  /// The widest level on which `needed` domains lend something; kBenefactor when there is none.
  Level level_for(std::size_t needed) const;
  std::size_t count(Level level) const { return lending_[level].size(); }
  Domain domain(BenefactorId id, Level level) const;
  /// The domains that lend something, in a circle: groups of neighbours are few, and each is in as
  /// many of them as another.
  const std::vector<Domain>& circle(Level level) const { return lending_[level]; }
  /// How far apart two domains are in that circle.
  std::size_t distance(Domain a, Domain b, Level level) const;

 private:
  const Topology topology_;
  std::map<BenefactorId, std::array<Domain, kLevels>> domains_;
  std::array<std::vector<Domain>, kLevels> lending_;
};

}  // namespace stdchk::manager
