#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/files/drain_folder.h"
#include "core/files/drain_manifest.h"

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
/// Limits: in memory are joined ranges and the pieces of one file, not a manifest. A manifest with
///   64 KiB between two marks of JSON is damaged.
class ManifestReader {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ManifestReader(Clock::time_point until) : until_(until) {}
  /// Returns the entries of a folder's manifest that have a time. Returns no entry when the
  /// manifest is absent, damaged, or no plain file. The same holds when its owner is not the
  /// folder's owner, root, or the user of this process. `path` is the folder's, for messages.
  ManifestEntries read(const DrainFolder& folder, const std::string& path);
  /// Manifests that were not read to their end.
  std::uint64_t unread() const { return unread_; }

 private:
  const Clock::time_point until_;
  std::uint64_t unread_ = 0;
};

}  // namespace stdchk::manager
