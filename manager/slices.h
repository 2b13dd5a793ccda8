#pragma once

#include <cstdint>
#include <vector>

#include "manager/chunk_table.h"

namespace stdchk::manager {

/// A Slice of a version in the manager's memory: 24 bytes. Ascending, not overlapping.
struct PackedSlice {
  std::uint64_t file_offset = 0;
  std::uint32_t length = 0;
  std::uint32_t chunk_offset = 0;
  ChunkIndex chunk = kNoChunk;
  std::uint64_t end() const { return file_offset + length; }
  bool operator==(const PackedSlice&) const = default;
};
static_assert(sizeof(PackedSlice) <= 48);
using PackedSlices = std::vector<PackedSlice>;

/// The slices without the bytes at and above `size_bytes`.
PackedSlices cut(const PackedSlices& base, std::uint64_t size_bytes);
/// `top` laid over `base`, exact to the byte: what is left of a base slice becomes one or two
/// slices.
PackedSlices overlay(const PackedSlices& base, const PackedSlices& top);
/// The part of `slice` in [from, to), which must not be empty.
PackedSlice part(const PackedSlice& slice, std::uint64_t from, std::uint64_t to);
/// True when ascending, without overlap, without empty slices and below limits::kFileBytesMax.
bool well_formed(const PackedSlices& slices);
std::uint64_t covered_bytes(const PackedSlices& slices);

}  // namespace stdchk::manager
