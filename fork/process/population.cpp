#include "fork/process/population.h"

#include <algorithm>

#include "fork/process/page_server.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBlock = PageServer::kBlockBytes;
constexpr std::uint64_t kPagesAtOnce = 4096;
/// A longer range counts as populated: its pagemap takes seconds to read.
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 40U;
/// proc(5): the page is in memory, or swapped out.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63U;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62U;

/// A Run is memory that has pages everywhere, or nowhere.
struct Run {
  MemoryPart memory;
  bool is_populated = false;
};

void add(std::vector<MemoryPart>& parts, const MemoryPart& part) {
  if (!parts.empty() && parts.back().end == part.begin) {
    parts.back().end = part.end;
  } else {
    parts.push_back(part);
  }
}

void add(std::vector<Run>& runs, const MemoryPart& memory, bool is_populated) {
  if (!runs.empty() && runs.back().memory.end == memory.begin &&
      runs.back().is_populated == is_populated) {
    runs.back().memory.end = memory.end;
  } else {
    runs.push_back({memory, is_populated});
  }
}

/// Reads at most kPagesAtOnce entries, and adds the blocks that they describe.
void add_blocks(std::vector<Run>& runs, const MemoryPart& memory, const ReadPagemap& read) {
  std::vector<std::uint64_t> entries((memory.end - memory.begin) / kPage);
  if (!read(memory.begin, entries)) return add(runs, memory, true);
  for (std::uint64_t at = memory.begin; at < memory.end;) {
    const std::uint64_t end = std::min(memory.end, (at / kBlock + 1) * kBlock);
    const auto first = entries.begin() + static_cast<std::ptrdiff_t>((at - memory.begin) / kPage);
    const auto behind = entries.begin() + static_cast<std::ptrdiff_t>((end - memory.begin) / kPage);
    add(runs, {at, end}, std::any_of(first, behind, [](std::uint64_t entry) {
          return (entry & (kPresent | kSwapped)) != 0;
        }));
    at = end;
  }
}

/// Holes that are smaller than `least` count as populated.
Population without_small_holes(const std::vector<Run>& runs, std::uint64_t least) {
  Population found;
  for (const auto& [memory, is_populated] : runs) {
    const bool has_pages = is_populated || memory.end - memory.begin < least;
    add(has_pages ? found.parts : found.holes, memory);
  }
  return found;
}

}  // namespace

Population find_population(const std::vector<MemoryPart>& ranges, const ReadPagemap& read) {
  std::vector<Run> runs;
  for (const MemoryPart& range : ranges) {
    if (range.end - range.begin > kBytesMax) {
      add(runs, range, true);
      continue;
    }
    // Each step ends at the end of a block.
    for (std::uint64_t at = range.begin; at < range.end;) {
      const std::uint64_t step = (at / kBlock * kBlock) + kPagesAtOnce * kPage;
      const std::uint64_t end = std::min(range.end, step);
      add_blocks(runs, {at, end}, read);
      at = end;
    }
  }
  Population found = without_small_holes(runs, 0);
  for (std::uint64_t least = 2 * kBlock; found.parts.size() > Population::kPartsMax; least *= 2) {
    found = without_small_holes(runs, least);
    if (found.holes.empty()) break;
  }
  return found;
}

}  // namespace stdchk::fork
