#pragma once

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// The expected place and content of a chunk in the arena.
struct ExpectedChunk {
  std::uint64_t extent_offset = 0;
  std::uint32_t length = 0;  ///< of the content
  std::uint32_t crc = 0;
  ChunkName name;  ///< not named: not compared
};

/// Returns the extent of `expected`, header and content. Fails with kInvalidArgument when it is not
/// at a legal place within `arena`.
Result<ByteSpan> find_extent(ByteSpan arena, const ExpectedChunk& expected);

/// Checks header, length, CRC and, if given, the name of `extent` (header and content). Fails with
/// kCorrupt when anything differs.
Status check_chunk(ByteSpan extent, const ExpectedChunk& expected);

}  // namespace stdchk::benefactor
