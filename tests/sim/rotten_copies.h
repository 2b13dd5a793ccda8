#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "benefactor/memory/metadata_log.h"
#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/state/chunk_table.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// RottenCopies corrupts copies of chunks, and metadata logs (one log at a time). It remembers the
/// corrupt copies until the pool has replaced them.
///
/// Threads: one. Draws random numbers from the simulation's generator.
class RottenCopies {
 public:
  RottenCopies(Cluster& cluster, Prng& prng) : cluster_(cluster), prng_(prng) {}
  /// Flips a bit of one copy, if another copy or the rest of its stripe is good. Or flips a bit of
  /// one metadata log, if other logs exist. False: nothing qualifies.
  bool flip();
  /// Forgets a corrupt copy after no map has named it for kForgotten. A manager that takes over may
  /// not know a repair of its predecessor.
  void forget_mended();
  const std::set<Extent>& all() const { return rotten_; }
  bool contains(const Extent& copy) const { return rotten_.contains(copy); }
  /// Whether corrupt copies existed at that time or later.
  bool since(Time time) const { return !rotten_.empty() || last_ >= time; }
  /// Runs two passes of the scrub. They must find every corrupt copy, and replace it where a good
  /// copy exists. Answers violations; afterwards all() holds the copies that the manager knows as
  /// corrupt.
  std::vector<std::string> scrub();
  /// Whether the whole metadata logs reach as far as the corrupt logs.
  bool logs_do() const;

 private:
  bool is_good(const Extent& copy) const;
  bool can_be_made(manager::ChunkIndex index) const;
  std::vector<const benefactor::MetadataLog*> logs() const;
  bool flip_log();

  Cluster& cluster_;
  Prng& prng_;
  std::set<Extent> rotten_;
  std::map<Extent, Time> named_;  ///< when a map last named the copy
  Time last_{};                   ///< when corrupt copies last existed
};

}  // namespace stdchk::sim
