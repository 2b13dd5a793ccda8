#pragma once

#include <cstdint>
#include <vector>

#include "manager/state/chunk_table.h"

namespace stdchk::manager {

/// A PackedSlice is a Slice of a version in the manager's memory, 24 bytes long. Slices of a
/// version ascend and do not overlap.
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

/// Returns `base` without the bytes at and above `size_bytes`.
PackedSlices cut(const PackedSlices& base, std::uint64_t size_bytes);
/// Returns `base` without the bytes in `holes`, exact to the byte.
PackedSlices without(const PackedSlices& base, const std::vector<Hole>& holes);
/// Lays `top` over `base`, exact to the byte. An uncovered rest of a base slice becomes one or two
/// slices.
PackedSlices overlay(const PackedSlices& base, const PackedSlices& top);
/// Returns the part of `slice` in [from, to). That part must not be empty.
PackedSlice part(const PackedSlice& slice, std::uint64_t from, std::uint64_t to);
/// Returns true when slices ascend, do not overlap, are not empty and end below
/// limits::kFileBytesMax.
bool well_formed(const PackedSlices& slices);
/// Returns true when holes ascend, do not overlap, are not empty and end below
/// limits::kFileBytesMax.
bool well_formed(const std::vector<Hole>& holes);
std::uint64_t covered_bytes(const PackedSlices& slices);

}  // namespace stdchk::manager
