#pragma once

#include "core/limits.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk {

/// An ExtentHeader stands in front of each chunk in an arena, so that the memory describes itself
/// (rule M8). 64 bytes, little endian; the layout is in docs/formats.md and pinned by a golden
/// test.
struct ExtentHeader {
  ChunkName name;
  std::uint32_t length = 0;  ///< of the content that follows
  std::uint32_t crc = 0;     ///< CRC32C of the content
  FileId file;               ///< that the chunk was first written for
  std::uint32_t index = 0;   ///< file offset / chunk size at that time, for chunks without a name
  bool operator==(const ExtentHeader&) const = default;
};

/// Writes the header's limits::kExtentHeaderBytes bytes to `out`, with magic and its own CRC.
void encode_extent_header(const ExtentHeader& header, std::byte* out);
/// kCorrupt when the bytes are not a header or fail the header's CRC.
Result<ExtentHeader> decode_extent_header(ByteSpan bytes);

/// Bytes that a chunk of `length` takes in an arena: header and content, in steps of the alignment.
constexpr std::uint64_t extent_bytes(std::uint32_t length) {
  constexpr std::uint64_t step = limits::kExtentAlignment;
  return (limits::kExtentHeaderBytes + length + step - 1) / step * step;
}

}  // namespace stdchk
