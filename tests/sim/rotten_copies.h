#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "benefactor/metadata_log.h"
#include "core/clock.h"
#include "core/types.h"
#include "manager/chunk_table.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// RottenCopies are copies of chunks whose memory has changed since they were written, and that
/// nobody has mended yet; and copies of the manager's journal, one at a time.
///
/// Threads: one. Draws from the numbers of the simulation.
class RottenCopies {
 public:
  RottenCopies(Cluster& cluster, Prng& prng) : cluster_(cluster), prng_(prng) {}
  /// Changes a bit of one copy, where another one, or the rest of its stripe, is as it should be;
  /// or of one metadata log where there are others. False: there is no such copy.
  bool flip();
  /// What no map has named for so long that none will again is nobody's business. A manager that
  /// takes over may not know yet what the one before had mended.
  void forget_mended();
  const std::set<Extent>& all() const { return rotten_; }
  bool contains(const Extent& copy) const { return rotten_.contains(copy); }
  /// There were some at that time, or later.
  bool since(Time time) const { return !rotten_.empty() || last_ >= time; }
  /// Two passes of the scrub: every copy that has changed is found, and made again where another
  /// one is left. Answers what is wrong; all() are those that are known to be wrong then.
  std::vector<std::string> scrub();
  /// The metadata logs that are as they should be have all that the others have.
  bool logs_do() const;

 private:
  bool is_good(const Extent& copy) const;
  bool can_be_made(manager::ChunkIndex index) const;
  std::vector<const benefactor::MetadataLog*> logs() const;
  bool flip_log();

  Cluster& cluster_;
  Prng& prng_;
  std::set<Extent> rotten_;
  std::map<Extent, Time> named_;  ///< when a map named it last
  Time last_{};                   ///< when there were some
};

}  // namespace stdchk::sim
