#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "core/values/types.h"

namespace stdchk::manager {

/// A GivenNumbers records the numbers for new files that a client was given.
///
/// Threads: one.
/// Limits: records kRangesMax ranges. Then it forgets the oldest range for each new one.
class GivenNumbers {
 public:
  static constexpr std::size_t kRangesMax = 65536;

  /// Numbers are given in ascending order. A range that continues the newest one extends it.
  void add(std::uint64_t first, std::uint64_t count) {
    if (!ranges_.empty()) {
      auto& [newest, length] = *std::prev(ranges_.end());
      if (newest + length == first) {
        length += count;
        return;
      }
    }
    ranges_.emplace(first, count);
    if (ranges_.size() > kRangesMax) ranges_.erase(ranges_.begin());
  }
  bool contains(FileId number) const {
    const auto above = ranges_.upper_bound(number.value);
    return above != ranges_.begin() &&
           number.value - std::prev(above)->first < std::prev(above)->second;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  ///< first number, count
};

}  // namespace stdchk::manager
