#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/result.h"

namespace stdchk::manager {

/// A run of bytes in one arena.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t end() const { return offset + length; }
  auto operator<=>(const Range&) const = default;
};

/// A FreeSpace records which ranges of one arena are free. It joins adjacent ranges at once.
///
/// Threads: one. Limits: ranges are multiples of limits::kExtentAlignment and not empty.
/// Errors: release() fails with kInvalidArgument when part of the range is already free,
/// take_exactly() when part of it is not free.
class FreeSpace {
 public:
  FreeSpace() = default;
  /// Marks all of [0, arena_bytes) free, rounded down to a multiple of the alignment.
  explicit FreeSpace(std::uint64_t arena_bytes);

  /// Takes the smallest free range of at least `want` bytes, cut to `want`. If there is none, takes
  /// the largest range, if it has at least `minimum` bytes.
  std::optional<Range> take(std::uint64_t want, std::uint64_t minimum);
  Status take_exactly(Range range);
  Status release(Range range);

  std::uint64_t arena_bytes() const { return arena_bytes_; }
  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t largest() const;
  /// Returns true when `count` ranges of `each_bytes` can be taken. O(count).
  bool fits(std::uint64_t each_bytes, std::size_t count) const;
  /// Free ranges, ascending: offset -> length.
  const std::map<std::uint64_t, std::uint64_t>& ranges() const { return by_offset_; }

 private:
  using Iterator = std::map<std::uint64_t, std::uint64_t>::iterator;
  void insert(Range range);
  void erase(Iterator range);
  bool valid(Range range) const;

  std::uint64_t arena_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_length_;  ///< (length, offset)
};

}  // namespace stdchk::manager
