#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A LookAhead recognizes, from single look-ups, that a directory is being scanned name by name.
/// Then one page of entries is worth more than the next answer alone.
///
/// Threads: one at a time (the engine's lock).
/// Limits: kDirectoriesMax directories; when full, it forgets all of them.
class LookAhead {
 public:
  static constexpr std::size_t kDirectoriesMax = 1024;
  static constexpr std::uint32_t kMissesFirst = 8;
  static constexpr std::uint32_t kMissesLast = 4096;

  /// Counts a look-up that the cache has answered.
  void hit(FileId directory) {
    const auto found = directories_.find(directory);
    if (found != directories_.end()) ++found->second.hits;
  }
  /// Counts a look-up that the cache could not answer, of a name that exists. Returns true when the
  /// entries after that name should be fetched.
  bool missed(FileId directory, Time now) {
    if (directories_.size() >= kDirectoriesMax) directories_.clear();
    Seen& seen = directories_[directory];
    if (now - seen.since > limits::kCacheLease) seen = Seen{now, 0, 0, seen.needed};
    if (++seen.misses < seen.needed) return false;
    // If few look-ups used the last page, more misses are needed before the next page is fetched.
    const bool paid = seen.hits >= kMissesFirst;
    seen = Seen{now, 0, 0, paid ? kMissesFirst : std::min(seen.needed * 4, kMissesLast)};
    return true;
  }

 private:
  struct Seen {
    Time since{};
    std::uint32_t misses = 0;
    std::uint32_t hits = 0;
    std::uint32_t needed = kMissesFirst;
  };
  std::unordered_map<FileId, Seen> directories_;
};

}  // namespace stdchk::client
