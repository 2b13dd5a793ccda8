#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/values/ids.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

/// A Manifest is the list of the digests of an image's units, by which each unit is checked. The
/// manifest travels as the first units. Its root proves it.
///
///     digest i = name_chunk(bytes [i * 16 KiB, min((i + 1) * 16 KiB, length)))
///     root     = name_chunk(length (8 bytes, low byte first) || digest 0 || digest 1 ...)
///     name_chunk: a tree of SHA-256, see core/chunk/naming.h
///     unit j of the manifest = digests j * 512 and on, the last unit filled up with zeros
///
/// Threads: one at a time.
class Manifest {
 public:
  static constexpr std::uint64_t kDigestsInUnit = kUnitBytes / sizeof(ChunkName);

  /// Without digests, for an image of that length.
  explicit Manifest(std::uint64_t image_bytes);
  /// Reads the whole image.
  static Result<Manifest> compute(
      std::uint64_t image_bytes,
      const std::function<Status(std::uint64_t offset, MutableByteSpan out)>& read);

  std::uint64_t image_bytes() const { return image_bytes_; }
  std::uint32_t image_units() const { return static_cast<std::uint32_t>(digests_.size()); }
  /// Units of the manifest itself.
  std::uint32_t own_units() const;
  std::uint32_t all_units() const { return own_units() + image_units(); }
  /// Returns the length of a unit. The image's last unit may be shorter.
  std::size_t unit_bytes(std::uint32_t image_unit) const;

  ChunkName root() const;
  void copy_own_unit(std::uint32_t unit, MutableByteSpan out) const;
  void set_own_unit(std::uint32_t unit, ByteSpan bytes);
  bool matches(std::uint32_t image_unit, ByteSpan bytes) const;

 private:
  std::uint64_t image_bytes_;
  std::vector<ChunkName> digests_;
};

/// Reads 64 hexadecimal digits, as to_hex() writes them.
std::optional<ChunkName> parse_root(const std::string& text);

}  // namespace stdchk::multicast
