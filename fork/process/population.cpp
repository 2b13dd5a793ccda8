#include "fork/process/population.h"

#include <algorithm>

#include "fork/process/page_server.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBlock = PageServer::kBlockBytes;
constexpr std::uint64_t kPagesAtOnce = 4096;
/// Addresses of programs are lower (x86-64).
constexpr std::uint64_t kAddressEnd = std::uint64_t{1} << 47U;
/// proc(5): the page is in memory, or swapped out.
constexpr std::uint64_t kPresent = std::uint64_t{1} << 63U;
constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62U;

/// A Run is memory of one range that has pages everywhere, or nowhere.
struct Run {
  MemoryPart memory;
  bool is_populated = false;
  /// The run begins a range. Adjacent ranges are different mappings, so they stay apart.
  bool is_first = false;
};

void add(std::vector<Run>& runs, const Run& run) {
  if (!runs.empty() && !run.is_first && runs.back().is_populated == run.is_populated) {
    runs.back().memory.end = run.memory.end;
  } else {
    runs.push_back(run);
  }
}

/// Reads at most kPagesAtOnce entries, and adds the blocks that they describe.
void add_blocks(std::vector<Run>& runs, const MemoryPart& memory, bool is_first,
                const ReadPagemap& read) {
  std::vector<std::uint64_t> entries((memory.end - memory.begin) / kPage);
  if (!read(memory.begin, entries)) return add(runs, {memory, true, is_first});
  for (std::uint64_t at = memory.begin; at < memory.end;) {
    const std::uint64_t end = std::min(memory.end, (at / kBlock + 1) * kBlock);
    const auto first = entries.begin() + static_cast<std::ptrdiff_t>((at - memory.begin) / kPage);
    const auto behind = entries.begin() + static_cast<std::ptrdiff_t>((end - memory.begin) / kPage);
    const bool is_populated = std::any_of(
        first, behind, [](std::uint64_t entry) { return (entry & (kPresent | kSwapped)) != 0; });
    add(runs, {{at, end}, is_populated, is_first && at == memory.begin});
    at = end;
  }
}

/// Holes that are smaller than `least` count as populated.
Population without_small_holes(const std::vector<Run>& runs, std::uint64_t least) {
  std::vector<Run> larger;
  for (const Run& run : runs) {
    const bool has_pages = run.is_populated || run.memory.end - run.memory.begin < least;
    add(larger, {run.memory, has_pages, run.is_first});
  }
  Population found;
  for (const Run& run : larger)
    (run.is_populated ? found.parts : found.holes).push_back(run.memory);
  return found;
}

}  // namespace

std::vector<MemoryPart> valid_ranges(std::vector<MemoryPart> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::uint64_t end = 0;
  std::erase_if(ranges, [&](const MemoryPart& range) {
    if (range.begin < end || range.begin >= range.end || range.end > kAddressEnd ||
        range.begin % kPage != 0 || range.end % kPage != 0) {
      return true;
    }
    end = range.end;
    return false;
  });
  return ranges;
}

Population find_population(const std::vector<MemoryPart>& ranges, const ReadPagemap& read) {
  std::vector<Run> runs;
  std::uint64_t left = Population::kBytesMax;
  for (const MemoryPart& range : ranges) {
    if (range.end - range.begin > left) {
      add(runs, {range, true, true});
      continue;
    }
    left -= range.end - range.begin;
    // Each step ends at the end of a block.
    for (std::uint64_t at = range.begin; at < range.end;) {
      const std::uint64_t step = (at / kBlock * kBlock) + kPagesAtOnce * kPage;
      const std::uint64_t end = std::min(range.end, step);
      add_blocks(runs, {at, end}, at == range.begin, read);
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
