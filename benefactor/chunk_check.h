#pragma once

#include "core/result.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// What a chunk in the arena should be.
struct ExpectedChunk {
  std::uint64_t extent_offset = 0;
  std::uint32_t length = 0;  ///< of the content
  std::uint32_t crc = 0;
  ChunkName name;  ///< not named: not compared
};

/// The extent of `expected`, header and content, when it lies within `arena` at a legal place;
/// kInvalidArgument otherwise.
Result<ByteSpan> find_extent(ByteSpan arena, const ExpectedChunk& expected);

/// Checks header, length, CRC and, when it has one, the name of `extent` (header and content).
/// kCorrupt when anything differs.
Status check_chunk(ByteSpan extent, const ExpectedChunk& expected);

}  // namespace stdchk::benefactor
