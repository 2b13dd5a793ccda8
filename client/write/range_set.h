#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/assert.h"

namespace stdchk::client {

/// A RangeSet is a sorted set of byte ranges [from, to). Ranges that touch are joined.
///
/// Threads: one at a time.
class RangeSet {
 public:
  struct Range {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    bool operator==(const Range&) const = default;
  };

  void add(std::uint32_t from, std::uint32_t to) {
    STDCHK_ASSERT(from <= to);
    if (from == to) return;
    auto first = std::find_if(ranges_.begin(), ranges_.end(),
                              [from](const Range& range) { return range.to >= from; });
    auto last = first;
    while (last != ranges_.end() && last->from <= to) {
      from = std::min(from, last->from);
      to = std::max(to, last->to);
      ++last;
    }
    first = ranges_.erase(first, last);
    ranges_.insert(first, Range{from, to});
  }
  std::size_t count() const { return ranges_.size(); }
  bool empty() const { return ranges_.empty(); }
  bool covers(std::uint32_t from, std::uint32_t to) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [=](const Range& r) { return r.from <= from && to <= r.to; });
  }
  const std::vector<Range>& ranges() const { return ranges_; }
  void clear() { ranges_.clear(); }

 private:
  std::vector<Range> ranges_;
};

}  // namespace stdchk::client
