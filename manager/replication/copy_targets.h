#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "core/values/types.h"
#include "manager/pool/failure_domains.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_order.h"
#include "manager/replication/copy_traffic.h"

namespace stdchk::manager {

/// A CopyView is the present state of a chunk's copies.
struct CopyView {
  std::vector<Extent> good;     ///< copies that count
  std::vector<Extent> sources;  ///< copies that can be read
  std::vector<Extent> bad;      ///< copies that do not count; dropped once a new one exists
  std::vector<Extent> gone;     ///< in `bad`: on a benefactor that is gone
  std::vector<Extent> leaving;  ///< in `bad`: on a benefactor that wants to leave
  std::uint32_t wanted = 0;
  bool whole = false;  ///< of an image that is placed by node
  /// The level on which copies must be apart.
  FailureDomains::Level level = FailureDomains::kBenefactor;
  std::set<FailureDomains::Domain> avoided;  ///< domains of the stripe's other blocks
  std::vector<BenefactorId> left_out;        ///< benefactors that get no copy
};

/// A CopyTargets chooses the benefactors that take copies of a chunk.
///
/// - Each benefactor gets at most one copy of a chunk. Two copies share a host only if there are
///   fewer hosts than copies. The same holds for racks and switches. If there are fewer racks than
///   copies, each rack gets a copy.
/// - The chunks of one benefactor have their other copies on few benefactors
///   (core/policy/copy_scatter.h). CopyTargets skips full benefactors. It adds further benefactors
///   to these few when they cover fewer failure domains than copies need.
/// - An image that is placed by node has each further copy whole on one benefactor. Its chunks wait
///   while that benefactor is busy. They go elsewhere when it is full or lost.
///
/// Owns: the order of the targets. Threads: the reactor's.
/// Not: a reservation. The caller takes the space.
class CopyTargets {
 public:
  using Rank = CopyTraffic::Rank;

  CopyTargets(const Pool& pool, const CopyTraffic& traffic)
      : pool_(pool), traffic_(traffic), order_(pool) {}

  CopyOrder& order() { return order_; }

  /// Returns the target with the least load. `now_only`: considers only benefactors that may get
  /// another request now.
  std::optional<BenefactorId> choose(const CopyView& view, std::uint64_t bytes, Rank rank,
                                     bool now_only);
  /// Returns benefactors that may take a copy of a chunk that is on `held`, for `wanted` copies.
  /// All chunks with the same first benefactor share these few targets. Never one of `left_out`.
  /// `whole`: the image is placed by node, and at most one benefactor is returned.
  std::vector<BenefactorId> besides(const std::vector<BenefactorId>& held, std::uint32_t wanted,
                                    std::uint64_t bytes, const std::vector<BenefactorId>& left_out,
                                    bool whole);

 private:
  std::vector<BenefactorId> all(const CopyView& view, std::uint64_t bytes, Rank rank);
  std::vector<BenefactorId> at_level(const CopyView& view, FailureDomains::Level level,
                                     std::uint64_t bytes, Rank rank);
  std::vector<BenefactorId> near(FailureDomains::Domain domain, FailureDomains::Level level) const;

  const Pool& pool_;
  const CopyTraffic& traffic_;
  CopyOrder order_;
};

}  // namespace stdchk::manager
