#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/types.h"

namespace stdchk::mount {

/// A CacheModes chooses how opens go that have the choice: around the page cache (large calls are
/// three times as fast so) or through it (small ones are). It learns from the sizes of the calls on
/// the last file of the same application in the same directory. A mount has one for writing and one
/// for reading.
///
/// Threads: any. Limits: kSeriesMax series are remembered; at more, all are forgotten.
class CacheModes {
 public:
  static constexpr std::size_t kSeriesMax = 65536;
  static constexpr std::uint64_t kSmallBytes = 64 * 1024;
  /// Through the page cache the application's sizes cannot be seen: after so many opens look again.
  static constexpr std::uint32_t kCachedOpensMax = 16;
  static constexpr std::uint64_t kCallsMin = 8;  ///< fewer say nothing

  /// True: a file of that name, about to be opened, goes through the page cache.
  bool choose_cached(FileId directory, std::string_view name);
  /// A file opened around the page cache was closed after so many calls.
  void learn(FileId directory, std::string_view name, std::uint64_t calls, std::uint64_t bytes);

 private:
  using Key = std::pair<FileId, std::string>;
  struct Series {
    bool small = false;
    std::uint32_t cached_opens = 0;
  };
  static Key key(FileId directory, std::string_view name);

  std::mutex mutex_;
  std::map<Key, Series> series_;
};

}  // namespace stdchk::mount
