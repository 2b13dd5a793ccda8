#pragma once

#include <cstdint>
#include <map>

#include "core/values/types.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// A CommandCounts knows the epoch of the manager, and how many commands each epoch of the block
/// has journalled.
///
/// Threads: one.
class CommandCounts {
 public:
  Epoch epoch() const { return epoch_; }
  /// Returns true when fewer than `sequence` commands of `epoch` are known.
  bool lacks(Epoch epoch, std::uint64_t sequence) const;

  /// A new block begins without the counts of the old one.
  void begin(Epoch epoch);
  /// Counts a command of the current epoch.
  void count();
  void snapshot(RestoreCounters& counters) const;
  void restore(const RestoreCounters& counters);

 private:
  Epoch epoch_;
  std::map<Epoch, std::uint64_t> records_{{Epoch{}, 0}};
};

}  // namespace stdchk::manager
