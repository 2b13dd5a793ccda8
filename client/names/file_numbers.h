#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "core/values/types.h"

namespace stdchk::client {

/// A FileNumbers has numbers for new files, which the manager has given.
///
/// Threads: one at a time (the engine's lock).
class FileNumbers {
 public:
  /// A request asks for so many numbers, when fewer than half of them are left.
  static constexpr std::uint32_t kAsked = 4096;

  void give(FileId first, std::uint32_t count) {
    if (count != 0) ranges_.emplace_back(first.value, first.value + count);
  }
  /// Returns none when no number is left.
  FileId take() {
    if (ranges_.empty()) return {};
    auto& [next, end] = ranges_.front();
    const FileId number{next++};
    if (next == end) ranges_.pop_front();
    return number;
  }
  /// How many numbers the next request should ask for.
  std::uint32_t wanted() const {
    std::uint64_t left = 0;
    for (const auto& [next, end] : ranges_) left += end - next;
    return left < kAsked / 2 ? kAsked : 0;
  }
  void clear() { ranges_.clear(); }

 private:
  /// Ranges of free numbers: the next one, and the end.
  std::deque<std::pair<std::uint64_t, std::uint64_t>> ranges_;
};

}  // namespace stdchk::client
