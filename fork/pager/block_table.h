#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/base/limits.h"

namespace stdchk::pager {

/// The unit in which an image is fetched, checked and given up: a leaf of a chunk's name.
inline constexpr std::uint64_t kBlockBytes = limits::kNameLeafBytes;
/// The longest image.
inline constexpr std::uint64_t kImageBytesMax = std::uint64_t{1} << 42;

/// A BlockRange is `count` blocks of an image from block `first` on.
struct BlockRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t end() const { return first + count; }
  bool operator==(const BlockRange&) const = default;
};

/// A Waiter is a thread of a clone that waits for the page at `address`.
struct Waiter {
  std::uint64_t clone = 0;
  std::uint64_t address = 0;
  bool operator==(const Waiter&) const = default;
};

/// A BlockTable knows which blocks of an image are in memory, and which callers wait for absent
/// blocks.
///
/// | state    | memory has the bytes | goes to                                       |
/// |----------|----------------------|-----------------------------------------------|
/// | absent   | no                   | fetching, by claim()                          |
/// | fetching | some                 | present, by filled(); absent, by failed()     |
/// | present  | yes                  | absent, by evict_oldest()                     |
///
/// After claim(), the caller must call filled() or failed() once for every block of the range.
///
/// Threads: one at a time.
class BlockTable {
 public:
  enum class State : std::uint8_t { kAbsent, kFetching, kPresent };

  explicit BlockTable(std::uint64_t size_bytes);

  std::uint64_t block_count() const { return states_.size(); }
  std::uint64_t present_count() const { return present_; }
  std::uint64_t fetching_count() const { return fetching_; }
  State state(std::uint64_t block) const { return states_[block]; }

  /// Adds a waiter for a block that is not present. Returns the block's state.
  State request(std::uint64_t block, const Waiter& waiter);
  /// Takes absent blocks from `first` on, up to the first that is not absent, at most `count_max`.
  BlockRange claim(std::uint64_t first, std::uint64_t count_max);
  /// Removes the waiters of the range, and appends them to `waiters`.
  void filled(const BlockRange& range, std::vector<Waiter>& waiters);
  void failed(const BlockRange& range, std::vector<Waiter>& waiters);
  /// True when a waiter exists for the block.
  bool is_wanted(std::uint64_t block) const { return waiters_.count(block) > 0; }
  /// Forgets a clone that has ended.
  void forget(std::uint64_t clone);
  /// Makes the blocks that were filled first absent: one range that was filled at once. The caller
  /// frees the memory before anybody can claim them. An empty range: nothing is present.
  BlockRange evict_oldest();
  /// Takes over blocks that the memory already has.
  void adopt(const BlockRange& present);

 private:
  void take_waiters(const BlockRange& range, std::vector<Waiter>& waiters);

  std::vector<State> states_;
  std::uint64_t present_ = 0;
  std::uint64_t fetching_ = 0;
  std::unordered_multimap<std::uint64_t, Waiter> waiters_;
  std::deque<BlockRange> filled_;  ///< oldest first
};

}  // namespace stdchk::pager
