#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/drain_manifest.h"

namespace stdchk::manager {

/// The entry of a drained file in a manifest.
struct ManifestEntry {
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::vector<DrainedRange> ranges;  ///< adjacent ranges are joined; gaps are possible
};
using ManifestEntries = std::map<std::string, ManifestEntry, std::less<>>;  ///< by file name

/// A ManifestReader reads the manifests of a drain directory, until a given time: clients wait for
/// a manager that starts.
///
/// Threads: one; blocks.
/// Limits: keeps joined ranges and the pieces of one file in memory, never a whole manifest.
class ManifestReader {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ManifestReader(Clock::time_point until) : until_(until) {}
  /// Returns the entries of the manifest in `folder`; none when the manifest is missing or damaged.
  /// Leaves out entries without a time, which older versions wrote.
  ManifestEntries read(const std::string& folder);
  /// The number of manifests that were not read to their end.
  std::uint64_t unread() const { return unread_; }

 private:
  const Clock::time_point until_;
  std::uint64_t unread_ = 0;
};

}  // namespace stdchk::manager
