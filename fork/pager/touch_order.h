#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fork/pager/block_table.h"

namespace stdchk::pager {

/// A TouchOrder is the order in which clones needed the blocks of an image. Clones of one image
/// behave alike, so that the next host fetches in this order ahead of its clones.
///
/// Threads: one at a time.
/// Limits: kRangesMax ranges; later ones are not recorded. Its encoding has at most kBytesMax.
class TouchOrder {
 public:
  static constexpr std::size_t kRangesMax = 8192;
  static constexpr std::size_t kBytesMax = 16 * limits::kKiB;

  /// Appends a range that was fetched because a clone touched its first block.
  void record(const BlockRange& range);
  std::size_t size() const { return ranges_.size(); }

  /// Returns up to `count_max` ranges that were recorded after the range with `block`.
  std::vector<BlockRange> following(std::uint64_t block, std::size_t count_max) const;

  /// Encodes as "stdchk.order.1\n" and two varints for each range. The first varint is the zigzag
  /// difference between the range's first block and the end of the range before. The second varint
  /// is the count. Varints have 7 bits in a byte, low bits first. Cut after the last range that
  /// fits.
  std::string encode() const;
  /// Returns nothing for another format, or for ranges outside of an image of `block_count` blocks.
  static std::optional<TouchOrder> decode(std::string_view text, std::uint64_t block_count);

 private:
  struct Entry {
    std::uint64_t first = 0;
    std::size_t position = 0;  ///< in ranges_
  };
  void index(std::size_t position);

  std::vector<BlockRange> ranges_;  ///< in the order of the touches
  std::vector<Entry> by_block_;     ///< sorted by the first block
};

}  // namespace stdchk::pager
