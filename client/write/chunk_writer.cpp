#include "client/write/chunk_writer.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
using Step = OutChunk::Step;

/// Failed writes of one chunk, after which the session fails.
constexpr std::uint32_t kFailuresMax = 16;
constexpr std::uint32_t kFailuresAtOnce = 2;  ///< failures after which a chunk's next attempt waits
constexpr Duration kRetryFirst = 50ms;
constexpr Duration kRetryLast = 1s;
constexpr std::uint32_t kAheadOfCopies = 8 * limits::kMiB;

}  // namespace

void ChunkWriter::add(const OutChunkPtr& chunk) {
  chunk->step = Step::kCarving;
  to_carve_.push_back(chunk);
}

bool ChunkWriter::has_enough_to_copy() const {
  return copies_itself_ && to_carve_.size() + in_transport_ >=
                               std::max(2U, kAheadOfCopies / core_.host.window().chunk_bytes());
}

void ChunkWriter::plan(Work& work) {
  const bool waits = !core_.error.has_value() && core_.now() < not_before_;
  while (!to_carve_.empty() && !waits) {
    OutChunkPtr chunk = to_carve_.front();
    auto& copies = chunk->chunk.copies;
    if (ledger_.unneeded(*chunk)) {
      to_carve_.pop_front();
      ledger_.finish_unneeded(*chunk);
      continue;
    }
    if (space_.waits_for_places(*chunk)) return;
    const auto extents = space_.carve(chunk->chunk);
    if (extents.empty() && copies.empty()) return;
    to_carve_.pop_front();
    if (extents.empty()) {
      ledger_.stored(*chunk, SlotState::kPlacing);
      continue;
    }
    copies.insert(copies.end(), extents.begin(), extents.end());
    write(chunk, extents, work);
  }
}

/// Starts one write to each place, all from the same bytes.
void ChunkWriter::write(const OutChunkPtr& chunk, const std::vector<Extent>& places, Work& work) {
  chunk->ours = true;
  chunk->step = Step::kWriting;
  chunk->writing = static_cast<std::uint32_t>(places.size());
  core_.move(chunk->segments, SlotState::kPlacing, SlotState::kWriting);
  const ExtentHeader header{
      chunk->chunk.name, chunk->chunk.length, chunk->chunk.crc, core_.file,
      static_cast<std::uint32_t>(chunk->file_offset / core_.host.window().chunk_bytes())};
  const auto& [first, second] = chunk->segments;
  std::byte* const data = first.slot->data + first.offset;
  MutableByteSpan more;
  if (second.slot != nullptr) more = {second.slot->data + second.offset, second.length};
  std::array<MutableByteSpan, transport::kPiecesMax> pieces;
  if (first.offset == 0) {
    // The header lies directly in front of the data: one piece holds both.
    std::byte* const head = data - limits::kExtentHeaderBytes;
    encode_extent_header(header, head);
    pieces = {MutableByteSpan(head, limits::kExtentHeaderBytes + first.length), more, {}};
  } else {
    std::byte* const head =
        first.slot->data - (chunk->order + 2) * std::size_t{limits::kExtentHeaderBytes};
    encode_extent_header(header, head);
    pieces = {MutableByteSpan(head, limits::kExtentHeaderBytes),
              MutableByteSpan(data, first.length), more};
  }
  for (const Extent& place : places) {
    auto one = std::make_unique<ChunkWrite>();
    one->chunk = chunk;
    one->is_write = true;
    one->at = place;
    one->grant = space_.grant_of(place);
    one->memory = &core_.host.window_memory();
    one->pieces = pieces;
    core_.figures.bytes_sent += limits::kExtentHeaderBytes + chunk->chunk.length;
    ++in_transport_;
    work.write.push_back(std::move(one));
  }
}

void ChunkWriter::written(const ChunkWrite& write, const Status& status) {
  --in_transport_;
  core_.schedule();
  OutChunk& chunk = *write.chunk;
  std::vector<Extent>& copies = chunk.chunk.copies;
  if (!follows_from_content(chunk.chunk.name)) copies_itself_ = write.moved_here;
  if (!status.has_value()) {
    space_.abandon(write.at);
    std::erase(copies, write.at);
    ++chunk.failures;
    // Another rail may lead to the benefactor.
    if (!write.has_other_rail) space_.avoid(write.at.benefactor, status.error());
  }
  if (--chunk.writing > 0) return;  // the last write to end decides
  // After repeated failures, the copies that exist must do.
  const bool enough =
      copies.size() == core_.places || chunk.failures > kFailuresAtOnce || ledger_.unneeded(chunk);
  if (!copies.empty() && enough) return ledger_.stored(chunk, SlotState::kWriting);
  if (!status.has_value() && chunk.failures > kFailuresMax) core_.fail_with(status.error());
  if (ledger_.unneeded(chunk)) return ledger_.drop(chunk, SlotState::kWriting);
  core_.move(chunk.segments, SlotState::kWriting, SlotState::kPlacing);
  chunk.step = Step::kCarving;
  to_carve_.push_front(write.chunk);
  if (chunk.failures <= kFailuresAtOnce) return;
  // An attempt may fail at once. Wait, so that benefactors can come back before the last attempt. The
  // wait follows from the chunk's failures, so the chunk needs no BackOff of its own.
  const Duration wait = std::min<Duration>(
      kRetryLast, kRetryFirst * (1U << std::min(chunk.failures - kFailuresAtOnce, 5U)));
  not_before_ = core_.now() + wait;
  core_.schedule_after(wait);
}

void ChunkWriter::forget_copies() {
  for (const OutChunkPtr& chunk : to_carve_) chunk->chunk.copies.clear();
}

void ChunkWriter::drop_all() {
  SpaceKeeper::Waiting chunks;
  chunks.swap(to_carve_);
  for (const OutChunkPtr& chunk : chunks) ledger_.drop(*chunk, SlotState::kPlacing);
}

}  // namespace stdchk::client
