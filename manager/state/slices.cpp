#include "manager/state/slices.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

/// Returns true when the ranges ascend, do not overlap, are not empty and end below
/// limits::kFileBytesMax.
template <class Range>
bool ascend(const std::vector<Range>& ranges, std::uint64_t Range::*offset) {
  std::uint64_t end = 0;
  for (const Range& range : ranges) {
    const std::uint64_t from = range.*offset;
    const std::uint64_t length = range.length;
    if (length == 0 || from < end || length > limits::kFileBytesMax) return false;
    if (from > limits::kFileBytesMax - length) return false;
    end = from + length;
  }
  return true;
}

}  // namespace

PackedSlice part(const PackedSlice& slice, std::uint64_t from, std::uint64_t to) {
  from = std::max(from, slice.file_offset);
  to = std::min(to, slice.end());
  const auto skipped = static_cast<std::uint32_t>(from - slice.file_offset);
  return {from, static_cast<std::uint32_t>(to - from), slice.chunk_offset + skipped, slice.chunk};
}

PackedSlices cut(const PackedSlices& base, std::uint64_t size_bytes) {
  PackedSlices out;
  out.reserve(base.size());
  for (const PackedSlice& slice : base) {
    if (slice.file_offset >= size_bytes) break;
    out.push_back(part(slice, slice.file_offset, size_bytes));
  }
  return out;
}

PackedSlices without(const PackedSlices& base, const std::vector<Hole>& holes) {
  PackedSlices out;
  out.reserve(base.size() + holes.size());
  auto next = holes.begin();
  for (const PackedSlice& slice : base) {
    std::uint64_t from = slice.file_offset;
    while (next != holes.end() && next->offset + next->length <= from) ++next;
    // A hole may begin before the slice, or end behind it: then it concerns other slices, too.
    for (auto hole = next; hole != holes.end() && hole->offset < slice.end(); ++hole) {
      if (from < hole->offset) out.push_back(part(slice, from, hole->offset));
      from = hole->offset + hole->length;
    }
    if (from < slice.end()) out.push_back(part(slice, from, slice.end()));
  }
  return out;
}

PackedSlices overlay(const PackedSlices& base, const PackedSlices& top) {
  PackedSlices out;
  out.reserve(base.size() + top.size());
  auto over = top.begin();
  for (const PackedSlice& under : base) {
    std::uint64_t from = under.file_offset;
    while (over != top.end() && over->end() <= from) out.push_back(*over++);
    // Slices of `top` that begin within `under` cut it; the last of them may end behind it.
    for (auto cover = over; from < under.end(); ++cover) {
      const std::uint64_t to =
          cover == top.end() ? under.end() : std::min(under.end(), cover->file_offset);
      if (from < to) out.push_back(part(under, from, to));
      if (cover == top.end() || cover->file_offset >= under.end()) break;
      from = cover->end();
      if (from <= under.end()) {
        out.push_back(*cover);
        over = cover + 1;
      }
    }
  }
  out.insert(out.end(), over, top.end());
  return out;
}

bool well_formed(const PackedSlices& slices) { return ascend(slices, &PackedSlice::file_offset); }

bool well_formed(const std::vector<Hole>& holes) { return ascend(holes, &Hole::offset); }

std::uint64_t covered_bytes(const PackedSlices& slices) {
  std::uint64_t bytes = 0;
  for (const PackedSlice& slice : slices) bytes += slice.length;
  return bytes;
}

}  // namespace stdchk::manager
