#pragma once

#include <cstdint>

#include "core/base/limits.h"
#include "core/values/types.h"

namespace stdchk::wire {

/// Returns true when the slices ascend, do not overlap, and lie within their chunks.
inline bool is_consistent(const stdchk::ChunkMap& map) {
  std::uint64_t end = 0;
  for (const stdchk::Slice& slice : map.slices) {
    if (slice.file_offset < end || slice.file_offset > limits::kFileBytesMax) return false;
    if (slice.chunk >= map.chunks.size()) return false;
    const std::uint64_t chunk_end = std::uint64_t{slice.chunk_offset} + slice.length;
    if (chunk_end > map.chunks[slice.chunk].length) return false;
    end = slice.file_offset + slice.length;
  }
  return end <= limits::kFileBytesMax;
}

}  // namespace stdchk::wire
