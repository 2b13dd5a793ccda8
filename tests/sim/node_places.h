#pragma once

#include <string>
#include <vector>

#include "tests/support/cluster.h"

namespace stdchk::sim {

/// NodePlaces checks where images lie that are placed by node (docs/decisions/0070).
///
/// Threads: one.
class NodePlaces {
 public:
  explicit NodePlaces(Cluster& cluster) : cluster_(cluster) {}
  /// Notes whether every benefactor is alive and has room. Call it after each step.
  void observe();
  /// Checks the chunks of each home. First copies must lie at home, and each further copy on one
  /// other benefactor. Checks nothing if a benefactor was full or absent at some time, because
  /// then copies may be elsewhere.
  std::vector<std::string> check();
  /// The number of chunks that check() has compared.
  std::size_t checked() const { return checked_; }

 private:
  Cluster& cluster_;
  bool undisturbed_ = true;
  std::size_t benefactors_ = 0;
  std::size_t checked_ = 0;
};

}  // namespace stdchk::sim
