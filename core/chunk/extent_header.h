#pragma once

#include "core/base/limits.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk {

/// An ExtentHeader precedes each chunk in an arena, so that the memory describes itself (rule M8).
/// It is 64 bytes long and little endian. docs/internals/formats.md has the layout; a golden test
/// pins it.
struct ExtentHeader {
  ChunkName name;
  std::uint32_t length = 0;  ///< bytes of content that follow
  std::uint32_t crc = 0;     ///< CRC32C of the content
  FileId file;               ///< file of the chunk's first write
  std::uint32_t index = 0;   ///< file offset / chunk size at that time, for chunks without a name
  bool operator==(const ExtentHeader&) const = default;
};

/// Writes the header's limits::kExtentHeaderBytes bytes to `out`, with the
/// magic number and its own CRC.
void encode_extent_header(const ExtentHeader& header, std::byte* out);
/// The first bytes of each header, as a little-endian number.
inline constexpr std::uint32_t kExtentHeaderMagic = 0x31584453;  // "SDX1"
/// Fails with kCorrupt when the bytes are no header or fail the header's CRC.
Result<ExtentHeader> decode_extent_header(ByteSpan bytes);

/// Returns the bytes that a chunk of `length` takes in an arena: header and content, rounded up to
/// the alignment.
constexpr std::uint64_t extent_bytes(std::uint32_t length) {
  constexpr std::uint64_t step = limits::kExtentAlignment;
  return (limits::kExtentHeaderBytes + length + step - 1) / step * step;
}

}  // namespace stdchk
