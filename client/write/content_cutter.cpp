#include "client/write/content_cutter.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::client {

void Scan::find(const BoundaryFinder& finder) {
  for (const auto& part : parts) {
    part->boundaries = find_boundaries(finder, part->segment.bytes());
  }
}

ContentCutter::ContentCutter(Window& window, ChunkSizes sizes, MakeChunk make)
    : window_(window), sizes_(sizes), make_(std::move(make)) {
  STDCHK_ASSERT(sizes.max <= window.chunk_bytes() && sizes.min >= sizes.max / 16);
}

ContentCutter::Runs::iterator ContentCutter::find_open(std::uint64_t file_offset) {
  auto [run, last] = runs_.equal_range(file_offset);
  run = std::find_if(run, last, [](const auto& entry) { return !entry.second.ending; });
  return run == last ? runs_.end() : run;
}

bool ContentCutter::continues_at(std::uint64_t file_offset) const {
  const auto [run, last] = runs_.equal_range(file_offset);
  return std::any_of(run, last, [](const auto& entry) { return !entry.second.ending; });
}

ScanPtr ContentCutter::take(Slot& slot, std::uint64_t base) {
  auto scan = std::make_shared<Scan>();
  for (const RangeSet::Range& range : slot.dirty.ranges()) {
    auto part = std::make_shared<Scan::Part>();
    part->segment = {&slot, range.from, range.to - range.from};
    auto run = find_open(base + range.from);
    if (run == runs_.end()) {
      run = runs_.emplace(base + range.from, Run(base + range.from, sizes_));
    }
    run->second.parts.push_back(part);
    run->second.ending = range.to < window_.chunk_bytes();
    auto node = runs_.extract(run);
    node.key() = base + range.to;
    runs_.insert(std::move(node));
    window_.hold(slot);
    scan->parts.push_back(std::move(part));
  }
  window_.cut(slot, static_cast<std::uint32_t>(scan->parts.size()));
  return scan;
}

void ContentCutter::scanned(const Scan& scan) {
  for (const auto& part : scan.parts) part->done = true;
  for (auto run = runs_.begin(); run != runs_.end();) run = advance(run);
}

void ContentCutter::end_all() {
  for (auto& [next, run] : runs_) run.ending = true;
  for (auto run = runs_.begin(); run != runs_.end();) run = advance(run);
}

bool ContentCutter::end_runs_in(const Slot& slot) {
  bool any = false;
  for (auto run = runs_.begin(); run != runs_.end();) {
    const auto& parts = run->second.parts;
    const bool holds = std::any_of(parts.begin(), parts.end(),
                                   [&](const auto& part) { return part->segment.slot == &slot; });
    if (!holds || run->second.ending) {
      ++run;
      continue;
    }
    any = run->second.ending = true;
    run = advance(run);
  }
  return any;
}

/// Cuts the parts whose boundaries are known, in order. Returns the run behind this one, and erases
/// this one if it has ended.
ContentCutter::Runs::iterator ContentCutter::advance(Runs::iterator entry) {
  Run& run = entry->second;
  std::vector<std::uint64_t> ends;
  while (run.pushed < run.parts.size() && run.parts[run.pushed]->done) {
    // A chunk has at most two segments. Whole slots never need more; short ranges, sealed early,
    // might.
    if (run.pushed == std::tuple_size_v<Segments>) make_chunk(run, run.chunker.end_chunk());
    const std::shared_ptr<Scan::Part> part = run.parts[run.pushed];
    ++run.pushed;
    ends.clear();
    run.chunker.push(part->segment.bytes(), part->boundaries, ends);
    for (const std::uint64_t end : ends) make_chunk(run, end);
    window_.move(*part->segment.slot, SlotState::kHashing, SlotState::kStored);
  }
  if (!run.ending || run.pushed < run.parts.size()) return std::next(entry);
  if (run.done < run.chunker.position()) make_chunk(run, run.chunker.end_chunk());
  return runs_.erase(entry);
}

/// Makes one chunk of the bytes from `run.done` to `end`, both counted from the run's beginning.
void ContentCutter::make_chunk(Run& run, std::uint64_t end) {
  Segments segments;
  std::array<Slot*, std::tuple_size_v<Segments>> finished{};
  const std::uint64_t file_offset = run.begin + run.done;
  for (std::size_t i = 0; run.done < end; ++i) {
    const Segment& part = run.parts.front()->segment;
    const auto skip = static_cast<std::uint32_t>(run.done - run.parts_begin);
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(end - run.done, part.length - skip));
    segments[i] = {part.slot, part.offset + skip, length};
    run.done += length;
    if (skip + length < part.length) continue;
    finished[i] = part.slot;
    run.parts_begin += part.length;
    run.parts.pop_front();
    --run.pushed;
  }
  make_(file_offset, segments);
  for (Slot* slot : finished) {
    if (slot != nullptr) window_.unhold(*slot);
  }
}

}  // namespace stdchk::client
