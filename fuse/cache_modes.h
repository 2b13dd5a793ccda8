#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/mutex.h"
#include "core/values/types.h"

namespace stdchk::mount {

/// A CacheModes decides whether opens use the kernel's page cache, where both ways work. Large
/// calls are three times as fast around the page cache; small calls are faster through it. It
/// learns from the call sizes on the application's last file in the same directory. A mount has one
/// CacheModes for writing and one for reading.
///
/// Threads: any.
/// Limits: remembers kSeriesMax series; beyond that, it forgets all.
class CacheModes {
 public:
  static constexpr std::size_t kSeriesMax = 65536;
  static constexpr std::uint64_t kSmallBytes = 64 * 1024;
  /// Opens through the page cache before one open goes around it, to see the application's call
  /// sizes.
  static constexpr std::uint32_t kCachedOpensMax = 16;
  static constexpr std::uint64_t kCallsMin = 8;  ///< fewer calls prove nothing

  /// Returns true when a file of that name should be opened through the page cache.
  bool choose_cached(FileId directory, std::string_view name);
  /// Records a closed file that was opened around the page cache: its `calls` and their `bytes` in
  /// total.
  void record_calls(FileId directory, std::string_view name, std::uint64_t calls,
                    std::uint64_t bytes);

 private:
  using Key = std::pair<FileId, std::string>;
  struct Series {
    bool small = false;
    std::uint32_t cached_opens = 0;
  };
  static Key key(FileId directory, std::string_view name);

  Mutex mutex_;
  std::map<Key, Series> series_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
