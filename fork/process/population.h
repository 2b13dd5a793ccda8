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

  std::vector<MemoryPart> parts;
  std::vector<MemoryPart> holes;
};

/// Reads entries of a process's pagemap, from the page at `address` on. Returns false if the
/// pagemap cannot be read.
using ReadPagemap = std::function<bool(std::uint64_t address, std::span<std::uint64_t> entries)>;

/// Finds the blocks of PageServer::kBlockBytes that have a page, in memory or swapped out. Memory
/// whose pagemap cannot be read counts as populated. `ranges` rise and do not overlap. Adjacent ranges
/// have separate parts and separate holes.
Population find_population(const std::vector<MemoryPart>& ranges, const ReadPagemap& read);

}  // namespace stdchk::fork
