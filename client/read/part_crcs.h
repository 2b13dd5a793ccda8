#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "client/read/chunk_cache.h"
#include "core/base/limits.h"
#include "core/values/types.h"

namespace stdchk::client {

/// The CRC32C of each part of one chunk: kPartBytes each, the last part may be shorter.
using PartCrcList = std::vector<std::uint32_t>;

/// A PartCrcs remembers the CRCs of the parts of chunks whose content was checked. A part that is
/// fetched alone can then be checked. The manager knows only the CRC of a whole chunk.
///
/// Threads: one at a time (the engine's lock).
/// Limits: kBytesMax; forgets the chunks that were not used for the longest time.
class PartCrcs {
 public:
  static constexpr std::uint32_t kPartBytes = limits::kNameLeafBytes;
  static constexpr std::size_t kBytesMax = 8 * limits::kMiB;

  /// Computes the CRCs of the parts of `content`, and its CRC. Threads: any.
  static PartCrcList compute(ByteSpan content);
  /// Returns the CRC of the whole content of `bytes` bytes. Threads: any.
  static std::uint32_t joined(const PartCrcList& parts, std::size_t bytes);

  /// Keeps the parts' CRCs of a chunk. Joined they must give `key.crc`.
  void insert(const CacheKey& key, PartCrcList parts);
  /// Returns nullptr when the chunk is not known. The list stays valid until insert() or forget().
  const PartCrcList* find(const CacheKey& key);
  void forget(const CacheKey& key);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Known {
    PartCrcList parts;
    std::list<CacheKey>::iterator recent;
  };
  static std::size_t cost(const PartCrcList& parts);

  std::map<CacheKey, Known> known_;
  std::list<CacheKey> recent_;  ///< by time of use, the newest first
  std::size_t bytes_ = 0;       ///< an estimate that includes the containers
};

}  // namespace stdchk::client
