#include "manager/space/free_space.h"

#include "core/base/limits.h"

namespace stdchk::manager {

FreeSpace::FreeSpace(std::uint64_t arena_bytes)
    : arena_bytes_(arena_bytes / limits::kExtentAlignment * limits::kExtentAlignment) {
  if (arena_bytes_ > 0) insert({0, arena_bytes_});
}

void FreeSpace::insert(Range range) {
  by_offset_.emplace(range.offset, range.length);
  by_length_.emplace(range.length, range.offset);
  free_bytes_ += range.length;
}

void FreeSpace::erase(Iterator range) {
  by_length_.erase({range->second, range->first});
  free_bytes_ -= range->second;
  by_offset_.erase(range);
}

bool FreeSpace::valid(Range range) const {
  return range.length > 0 && range.offset % limits::kExtentAlignment == 0 &&
         range.length % limits::kExtentAlignment == 0 && range.length <= arena_bytes_ &&
         range.offset <= arena_bytes_ - range.length;
}

std::uint64_t FreeSpace::largest() const {
  return by_length_.empty() ? 0 : by_length_.rbegin()->first;
}

bool FreeSpace::fits(std::uint64_t each_bytes, std::size_t count) const {
  constexpr std::uint64_t step = limits::kExtentAlignment;
  const std::uint64_t each = (each_bytes + step - 1) / step * step;
  if (each == 0) return false;
  std::uint64_t found = 0;
  for (auto range = by_length_.rbegin(); range != by_length_.rend() && found < count; ++range) {
    if (range->first < each) return false;
    found += range->first / each;
  }
  return found >= count;
}

std::optional<Range> FreeSpace::take(std::uint64_t want, std::uint64_t minimum) {
  constexpr std::uint64_t step = limits::kExtentAlignment;
  want = (want + step - 1) / step * step;
  if (by_length_.empty() || want == 0) return std::nullopt;
  auto best = by_length_.lower_bound({want, 0});
  if (best == by_length_.end()) {
    --best;
    if (best->first < minimum) return std::nullopt;
  }
  const Range whole{best->second, best->first};
  erase(by_offset_.find(whole.offset));
  if (whole.length <= want) return whole;
  insert({whole.offset + want, whole.length - want});
  return Range{whole.offset, want};
}

Status FreeSpace::take_exactly(Range range) {
  if (!valid(range)) return fail(Code::kInvalidArgument, "free_space.take");
  auto around = by_offset_.upper_bound(range.offset);
  if (around == by_offset_.begin()) return fail(Code::kInvalidArgument, "free_space.take");
  --around;
  const Range whole{around->first, around->second};
  if (range.end() > whole.end()) return fail(Code::kInvalidArgument, "free_space.take");
  erase(around);
  if (whole.offset < range.offset) insert({whole.offset, range.offset - whole.offset});
  if (range.end() < whole.end()) insert({range.end(), whole.end() - range.end()});
  return {};
}

Status FreeSpace::release(Range range) {
  if (!valid(range)) return fail(Code::kInvalidArgument, "free_space.give");
  auto next = by_offset_.lower_bound(range.offset);
  if (next != by_offset_.end() && next->first < range.end()) {
    return fail(Code::kInvalidArgument, "free_space.give");
  }
  if (next != by_offset_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second > range.offset) {
      return fail(Code::kInvalidArgument, "free_space.give");
    }
    if (before->first + before->second == range.offset) {
      range = {before->first, before->second + range.length};
      erase(before);
    }
  }
  if (next != by_offset_.end() && next->first == range.end()) {
    range.length += next->second;
    erase(next);
  }
  insert(range);
  return {};
}

}  // namespace stdchk::manager
