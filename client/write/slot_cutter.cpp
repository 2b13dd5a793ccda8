#include "client/write/slot_cutter.h"

#include <algorithm>
#include <utility>

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

/// Limit of slots that wait for the slot before them. Beyond it, the first slots are cut anyway.
constexpr std::size_t kOutOfOrderMax = 16;
/// How long bytes wait for bytes in front of them of which nothing has come.
constexpr Duration kHoleWait = 50ms;
constexpr Duration kHeldBack = 20ms;  ///< how long writers are held back

/// The longest content-defined chunk is as long as a chunk of fixed length.
ChunkSizes content_sizes(const Window& window) {
  return ChunkSizes::around(window.chunk_bytes() / 4);
}

}  // namespace

SlotCutter::SlotCutter(const Parts& parts, bool content_cuts)
    : parts_(parts),
      content_cuts_(content_cuts),
      boundaries_(content_sizes(parts.core.host.window())),
      cutter_(parts.core.host.window(), content_sizes(parts.core.host.window()),
              [this](std::uint64_t file_offset, const Segments& segments)
                  STDCHK_REQUIRES(engine_lock) {
                    if (OutChunkPtr chunk = make_chunk(file_offset, segments)) {
                      parts_.hashes.add(std::move(chunk));
                    }
                  }) {}

Slot* SlotCutter::slot_for(std::uint64_t part, bool may_begin) {
  auto found = filling_.find(part);
  if (found != filling_.end() && found->second->dirty.count() >= kSlotRangesMax) {
    seal(*found->second);
    found = filling_.end();
  }
  if (found == filling_.end()) {
    if (!may_begin || must_hold_back(part)) return nullptr;
    Slot* slot = parts_.core.host.window().acquire(parts_.core.id.value, part);
    if (slot == nullptr) return nullptr;
    found = filling_.emplace(part, slot).first;
  }
  return found->second;
}

OutChunkPtr SlotCutter::end_copy(Slot& slot) {
  Window& window = parts_.core.host.window();
  if (slot.state == SlotState::kFilling && (window.full(slot) || parts_.core.error.has_value())) {
    filling_.erase(slot.part);
    window.seal(slot);
    sealed_.push_back({&slot, parts_.core.now()});
  }
  if (!Window::settled(slot)) return nullptr;
  out_of_order_ =
      out_of_order_ || std::any_of(sealed_.begin(), sealed_.end(), [&](const auto& each) {
        return Window::settled(*each.slot) && each.slot->part == slot.part + 1;
      });
  return cut_or_wait(slot);
}

void SlotCutter::seal_part(std::uint64_t part) {
  const auto found = filling_.find(part);
  if (found != filling_.end()) seal(*found->second);
}

void SlotCutter::seal(Slot& slot) {
  parts_.core.yields_slot = false;
  filling_.erase(slot.part);
  parts_.core.host.window().seal(slot);
  sealed_.push_back({&slot, parts_.core.now()});
  if (!Window::settled(slot)) return;
  if (OutChunkPtr chunk = cut_or_wait(slot)) parts_.hashes.add(std::move(chunk));
}

void SlotCutter::seal_all() {
  std::vector<Slot*> slots;
  for (const auto& [part, slot] : filling_) slots.push_back(slot);
  std::sort(slots.begin(), slots.end(), [](auto* a, auto* b) { return a->part < b->part; });
  for (Slot* slot : slots) seal(*slot);
  (void)cut_behind_holes(Duration::zero());
  cutter_.end_all();
}

void SlotCutter::seal_early(Slot& slot) {
  if (slot.state == SlotState::kOpen) {
    if (cutter_.end_runs_in(slot)) parts_.core.schedule();
  } else if (slot.state == SlotState::kFilling) {
    seal(slot);
  } else {
    (void)cut_in_order(slot);
  }
  parts_.core.yields_slot = true;
}

/// Cuts a slot whose content is final, unless the slot before it must be cut first. Returns a chunk
/// whose CRC the caller should compute, or nullptr.
OutChunkPtr SlotCutter::cut_or_wait(Slot& slot) {
  if (!waits_for_preceding_slot(slot)) return cut_in_order(slot);
  limit_waiting();
  parts_.core.schedule();
  return nullptr;
}

OutChunkPtr SlotCutter::cut_in_order(Slot& slot) {
  std::erase_if(sealed_, [&](const Sealed& each) { return each.slot == &slot; });
  const std::uint64_t next = slot.part + 1;
  OutChunkPtr chunk = cut(slot);
  // Slots that have waited for this one; several when their part was written again meanwhile. Their
  // chunks are content-defined, so the caller has nothing to hash.
  std::vector<Slot*> behind;
  for (const Sealed& other : sealed_) {
    if (other.slot->part == next && Window::settled(*other.slot)) behind.push_back(other.slot);
  }
  for (Slot* other : behind) {
    if (Window::settled(*other)) (void)cut_or_wait(*other);
  }
  if (waiting().count < waiting_max()) stop_holding_back();
  return chunk;
}

OutChunkPtr SlotCutter::cut(Slot& slot) {
  SessionCore& core = parts_.core;
  Window& window = core.host.window();
  const std::uint64_t base = slot.part * window.chunk_bytes();
  if (content_cuts_ && !core.error.has_value() && slot.dirty.count() > 0) {
    to_scan_.push_back(cutter_.take(slot, base));
    core.schedule();
    return nullptr;
  }
  window.cut(slot, 1);  // keeps the slot until all its chunks are made
  std::vector<OutChunkPtr> chunks;
  for (const RangeSet::Range& range : slot.dirty.ranges()) {
    const Segments segments = {Segment{&slot, range.from, range.to - range.from}, Segment{}};
    OutChunkPtr chunk = make_chunk(base + range.from, segments);
    if (chunk != nullptr) chunks.push_back(std::move(chunk));
  }
  window.move(slot, SlotState::kHashing, SlotState::kStored);
  if (chunks.empty()) {
    parts_.committer.finish_syncs();
    core.notify();
    return nullptr;
  }
  // The calling thread computes the CRC: its processor's cache has the bytes.
  if (chunks.size() == 1) return chunks.front();
  for (OutChunkPtr& chunk : chunks) parts_.hashes.add(std::move(chunk));
  return nullptr;
}

/// Makes a chunk of the bytes at `file_offset`. Returns nullptr when nothing refers to them.
OutChunkPtr SlotCutter::make_chunk(std::uint64_t file_offset, const Segments& segments) {
  auto chunk = std::make_shared<OutChunk>();
  chunk->file_offset = file_offset;
  for (const Segment& segment : segments) {
    if (segment.slot == nullptr) break;
    const std::uint64_t from = file_offset + chunk->chunk.length;
    chunk->live_bytes += parts_.written.overlay().refer(from, from + segment.length, *segment.slot,
                                                        chunk, chunk->chunk.length);
    chunk->chunk.length += segment.length;
  }
  if (parts_.ledger.unneeded(*chunk)) return nullptr;
  chunk->segments = segments;
  chunk->order = segments[0].slot->cuts++;
  parts_.ledger.begin(*chunk);
  return chunk;
}

/// True when the previous slot of the file must be cut first. Threads may fill slots out of order;
/// the chunks do not depend on that when slots are cut in order.
bool SlotCutter::waits_for_preceding_slot(const Slot& slot) const {
  if (!content_cuts_ || parts_.core.error.has_value() || slot.part == 0 ||
      parts_.committer.has_syncs()) {
    return false;
  }
  if (!slot.dirty.covers(0, 1)) return false;
  const std::uint64_t begin = slot.part * parts_.core.host.window().chunk_bytes();
  if (cutter_.continues_at(begin)) return false;
  if (is_filling_or_sealed(slot.part - 1)) return true;
  if (parts_.committer.under_way()) return false;
  // The bytes before this slot may still come, unless they were written and cut already.
  bool was_written = false;
  parts_.written.overlay().visit(begin - 1, begin,
                                 [&](std::uint64_t, std::uint64_t, const Piece* piece) {
                                   was_written = piece != nullptr;
                                   return false;
                                 });
  return !was_written;
}

/// True when a slot of that part is filling, or waits to be cut.
bool SlotCutter::is_filling_or_sealed(std::uint64_t part) const {
  return filling_.contains(part) ||
         std::any_of(sealed_.begin(), sealed_.end(),
                     [&](const Sealed& each) { return each.slot->part == part; });
}

/// Counts the slots that wait for their predecessors, and finds the first one in the file.
SlotCutter::Waiting SlotCutter::waiting() const {
  Waiting all;
  for (const auto& [slot, since] : sealed_) {
    if (!Window::settled(*slot)) continue;
    ++all.count;
    if (all.first == nullptr || slot->part < all.first->part) all.first = slot;
  }
  return all;
}

std::size_t SlotCutter::waiting_max() const {
  return std::min(parts_.core.host.window().slot_count() / 4, kOutOfOrderMax);
}

bool SlotCutter::must_hold_back(std::uint64_t part) {
  if (!out_of_order_) return false;
  const auto [count, first] = waiting();
  if (first == nullptr || count < waiting_max() || part < first->part) return false;
  if (held_back_ == Time{}) {
    held_back_ = parts_.core.now();
    parts_.core.schedule();
  }
  return true;
}

void SlotCutter::stop_holding_back() {
  if (held_back_ == Time{}) return;
  held_back_ = {};
  parts_.core.notify();
}

/// Cuts the first waiting slots although bytes before them are missing, while too many wait.
void SlotCutter::limit_waiting() {
  for (Waiting all = waiting(); all.count > waiting_max(); all = waiting()) {
    (void)cut_in_order(*all.first);
  }
}

/// Cuts slots that have waited at least `wait` although nothing of the slot before them has come.
/// Returns since when the next slot waits; Time{} when none does.
Time SlotCutter::cut_behind_holes(Duration wait) {
  const Time until = parts_.core.now() - wait;
  for (;;) {
    const Sealed* first = nullptr;
    for (const Sealed& each : sealed_) {
      if (!Window::settled(*each.slot) || is_filling_or_sealed(each.slot->part - 1)) continue;
      if (first == nullptr || each.since < first->since) first = &each;
    }
    if (first == nullptr) return {};
    if (first->since > until) return first->since;
    (void)cut_in_order(*first->slot);
  }
}

std::vector<OutChunkPtr> SlotCutter::scanned(const Scan& scan) {
  // A sync or commit waits for all that was written, or the session has failed: keep no run open.
  if (parts_.committer.has_syncs() || parts_.committer.under_way() ||
      parts_.core.error.has_value()) {
    cutter_.end_all();
  }
  cutter_.scanned(scan);
  std::vector<OutChunkPtr> chunks = parts_.hashes.take();
  parts_.committer.finish_syncs();
  parts_.core.schedule();
  parts_.core.notify();
  return chunks;
}

/// Threads that write in order leave a hole only until they get a processor again.
void SlotCutter::plan(Work& work) {
  SessionCore& core = parts_.core;
  const Time now = core.now();
  if (held_back_ != Time{} && now - held_back_ >= kHeldBack) {
    out_of_order_ = false;
    stop_holding_back();
  }
  const Time since = cut_behind_holes(kHoleWait);
  Time due = since == Time{} ? Time::max() : since + kHoleWait;
  if (held_back_ != Time{}) due = std::min(due, held_back_ + kHeldBack);
  if (due != Time::max() && due != hole_timer_) {
    hole_timer_ = due;
    core.schedule_after(due - now);
  }
  for (ScanPtr& scan : to_scan_) work.search.push_back({core.self(), std::move(scan)});
  to_scan_.clear();
}

}  // namespace stdchk::client
