#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stdchk::fork {

/// A MemoryPart is a range of a process's memory.
struct MemoryPart {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool operator==(const MemoryPart&) const = default;
};

/// A Population says which parts of a process's memory have pages. Other hosts fetch these parts
/// only: the rest are holes, which read as zeros.
struct Population {
  /// Number of parts at most, unless more ranges have pages. Small holes count as populated when
  /// there are more.
  static constexpr std::size_t kPartsMax = 1024;
  /// Longest memory in all whose pagemap is read, which takes up to 1 s. A range beyond it counts as
  /// populated.
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 30U;

  std::vector<MemoryPart> parts;
  std::vector<MemoryPart> holes;
};

/// Reads entries of a process's pagemap, from the page at `address` on. Returns false if the
/// pagemap cannot be read.
using ReadPagemap = std::function<bool(std::uint64_t address, std::span<std::uint64_t> entries)>;

/// Sorts ranges that another process has sent. Drops empty ranges, ranges that overlap one before
/// them, ranges that are no whole pages, and ranges that no program of x86-64 can have.
std::vector<MemoryPart> valid_ranges(std::vector<MemoryPart> ranges);

/// Finds the blocks of PageServer::kBlockBytes that have a page, in memory or swapped out. Memory
/// whose pagemap cannot be read counts as populated. `ranges` rise and do not overlap. Adjacent ranges
/// have separate parts and separate holes.
Population find_population(const std::vector<MemoryPart>& ranges, const ReadPagemap& read);

}  // namespace stdchk::fork
