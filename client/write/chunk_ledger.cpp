#include "client/write/chunk_ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/chunk/extent_header.h"

namespace stdchk::client {

void ChunkLedger::begin(OutChunk& chunk) {
  chunk.session = core_.self();
  for (const Segment& segment : chunk.segments) {
    if (segment.slot != nullptr) core_.host.window().add_chunk(*segment.slot);
  }
  ++count_;
}

void ChunkLedger::stored(OutChunk& chunk, SlotState from) {
  chunk.step = OutChunk::Step::kStored;
  if (chunk.ours && chunk.chunk.copies.size() < core_.places) {
    core_.figures.bytes_short += chunk.chunk.length;
  }
  core_.figures.open_to_stored = core_.now() - core_.opened;
  if (chunk.live_bytes == 0) release_unreferenced(chunk);
  const auto keep = std::move(chunk.session);
  finish(std::exchange(chunk.segments, {}), from);
}

void ChunkLedger::drop(OutChunk& chunk, SlotState from) {
  chunk.step = OutChunk::Step::kDropped;
  const auto keep = std::move(chunk.session);
  finish(std::exchange(chunk.segments, {}), from);
}

/// Ends a chunk, whose bytes no longer need their slots.
void ChunkLedger::finish(const Segments& segments, SlotState from) {
  STDCHK_ASSERT(count_ > 0);
  --count_;
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Segment& segment : segments) {
    if (segment.slot != nullptr) oldest = std::min(oldest, segment.slot->age);
  }
  core_.move(segments, from, SlotState::kStored);
  committer_.chunk_ended(oldest);
  committer_.finish_syncs();
  core_.schedule();
  core_.notify();
}

void ChunkLedger::finish_unneeded(OutChunk& chunk) {
  if (chunk.chunk.copies.empty()) return drop(chunk, SlotState::kPlacing);
  stored(chunk, SlotState::kPlacing);
}

void ChunkLedger::removed(const Piece& piece, std::uint64_t length) {
  if (piece.chunk == nullptr) return;
  OutChunk& chunk = *piece.chunk;
  STDCHK_ASSERT(chunk.live_bytes >= length);
  chunk.live_bytes -= length;
  if (chunk.live_bytes == 0) release_unreferenced(chunk);
}

/// Gives back a stored chunk to which nothing refers any more. A chunk in an earlier step is
/// dropped when that step ends.
void ChunkLedger::release_unreferenced(OutChunk& chunk) {
  if (chunk.step != OutChunk::Step::kStored) return;
  chunk.step = OutChunk::Step::kDropped;
  if (!chunk.ours) return;
  for (const Extent& copy : chunk.chunk.copies) {
    space_.give_back(copy, extent_bytes(chunk.chunk.length));
  }
  chunk.ours = false;
}

}  // namespace stdchk::client
