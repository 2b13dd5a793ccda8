#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/objects/object_store.h"

namespace stdchk {

/// The type of a file whose object has no content of its own, or a regular file.
enum class ObjectKind : std::uint8_t {
  kFile,
  kDirectory,  ///< its key ends with a slash
  kSymlink,    ///< its bytes are the target
  kFifo,
  kSocket,
};

/// ObjectAttributes are what the object of a drained file says of the file, in its metadata.
///
/// CRCs cover ranges of `range_bytes`, a power of two. The last range may be shorter. So the object
/// describes itself, and appears together with its checksums.
struct ObjectAttributes {
  static constexpr std::uint64_t kRangeBytesMin = std::uint64_t{16} << 20;
  static constexpr std::size_t kRangesMax = 200;  ///< they fit into 2 KiB, as text

  ObjectKind kind = ObjectKind::kFile;
  std::uint32_t mode = 0;  ///< permission bits
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int64_t mtime_ns = 0;
  std::string attempt;  ///< names the drain that made the object
  std::uint64_t range_bytes = kRangeBytesMin;
  std::vector<std::uint32_t> crcs;  ///< crc32c() of each range; empty: unknown

  /// Returns the length of the ranges of a file of this size.
  static std::uint64_t range_bytes_of(std::uint64_t size_bytes);

  ObjectMetadata metadata() const;
  /// Returns nothing for an object that no pool has written.
  static std::optional<ObjectAttributes> parse(const ObjectMetadata& metadata);
};

}  // namespace stdchk
