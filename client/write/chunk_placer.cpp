#include "client/write/chunk_placer.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
using Step = OutChunk::Step;

constexpr std::size_t kBatchesInFlightMax = 2;
constexpr std::size_t kBatchTargetMax = 128;
/// How long the first chunk of a batch waits for others.
constexpr Duration kBatchWait = 20ms;

}  // namespace

void ChunkPlacer::place(const OutChunkPtr& chunk) {
  auto& [core, written, committer, space, ledger, equal, writer] = parts_;
  if (ledger.unneeded(*chunk)) return ledger.drop(*chunk, SlotState::kPlacing);
  core.naming->record_chunk(chunk->plain_crc, chunk->chunk.length);
  if (!follows_from_content(chunk->chunk.name)) {
    has_unnamed_ = true;
    return writer.add(chunk);
  }
  core.figures.bytes_named += chunk->chunk.length;
  core.host.totals().named_bytes += chunk->chunk.length;
  if (reuse_equal_chunk(chunk)) return;
  chunk->step = Step::kAsking;
  if (to_ask_.empty()) ask_by_ = core.now() + kBatchWait;
  to_ask_.push_back(chunk);
}

/// True when the same bytes are stored where a benefactor answers, or on their way in this session.
/// The chunk then refers to those.
bool ChunkPlacer::reuse_equal_chunk(const OutChunkPtr& chunk) {
  EqualChunks::Found found = parts_.equal.find(chunk);
  if (found.stored.has_value()) {
    count_found(*chunk);
    chunk->chunk = std::move(*found.stored);
    parts_.ledger.stored(*chunk, SlotState::kPlacing);
    return true;
  }
  if (found.own == nullptr) return false;
  count_found(*chunk);
  alias(chunk, found.own);
  return true;
}

/// Makes all that refers to `chunk` refer to `target`, and drops `chunk`.
void ChunkPlacer::alias(const OutChunkPtr& chunk, const OutChunkPtr& target) {
  const std::uint64_t end = chunk->file_offset + chunk->chunk.length;
  Overlay::Entries& entries = parts_.written.overlay().entries();
  auto entry = entries.lower_bound(chunk->file_offset);
  for (; entry != entries.end() && entry->first < end; ++entry) {
    if (entry->second.piece.chunk != chunk) continue;
    entry->second.piece.chunk = target;
    chunk->live_bytes -= entry->second.length;
    target->live_bytes += entry->second.length;
  }
  STDCHK_ASSERT(chunk->live_bytes == 0);
  // A sync that waits for these bytes must now wait for the slots of the target.
  for (const Segment& to : target->segments) {
    for (const Segment& from : chunk->segments) {
      if (to.slot != nullptr && from.slot != nullptr) {
        to.slot->age = std::min(to.slot->age, from.slot->age);
      }
    }
  }
  parts_.ledger.drop(*chunk, SlotState::kPlacing);
}

/// Counts a chunk that the pool, or this session, already had.
void ChunkPlacer::count_found(const OutChunk& chunk) {
  SessionCore& core = parts_.core;
  core.figures.bytes_existing += chunk.chunk.length;
  core.host.totals().equal_bytes += chunk.chunk.length;
  core.naming->judge(chunk.plain_crc, chunk.chunk.length, true);
}

/// True when enough chunks wait for a call to pay, or when something waits for them.
bool ChunkPlacer::batch_is_due() {
  SessionCore& core = parts_.core;
  // A batch holds at most a quarter of the window.
  const std::size_t chunks_a_slot = content_cuts_ ? 4 : 1;
  const std::size_t target =
      chunks_a_slot * std::min(batch_target_, core.host.window().slot_count() / 4);
  if (to_ask_.size() >= target || core.error.has_value()) return true;
  if (batches_in_flight_ > 0) return false;
  if (parts_.committer.under_way() || parts_.committer.has_syncs()) return true;
  if (core.yields_slot) return true;
  const Duration left = ask_by_ - core.now();
  if (left <= Duration::zero()) return true;
  if (ask_timer_ != ask_by_) core.schedule_after(left);
  ask_timer_ = ask_by_;
  return false;
}

void ChunkPlacer::plan_look_up(Work& work) {
  auto& [core, written, committer, space, ledger, equal, writer] = parts_;
  while (!to_ask_.empty() && batches_in_flight_ < kBatchesInFlightMax &&
         core.state != SessionCore::State::kEnded) {
    if (!batch_is_due()) return;
    std::vector<OutChunkPtr> batch;
    while (!to_ask_.empty() && batch.size() < limits::kPlaceBatchMax) {
      OutChunkPtr chunk = std::move(to_ask_.front());
      to_ask_.pop_front();
      if (ledger.unneeded(*chunk)) {
        ledger.drop(*chunk, SlotState::kPlacing);
        continue;
      }
      chunk->step = Step::kAsked;
      batch.push_back(std::move(chunk));
    }
    if (batch.empty()) return;
    batch_target_ = std::min(batch_target_ * 2, kBatchTargetMax);
    // While the pool is full, chunks are only looked up, and no space is asked for.
    std::uint64_t batch_bytes = 0;
    for (const OutChunkPtr& chunk : batch) {
      batch_bytes += core.places * extent_bytes(chunk->chunk.length);
    }
    const std::uint64_t want =
        space.may_ask() ? space.wanted_bytes(writer.waiting(), batch_bytes, committer.under_way())
                        : 0;
    send(work, std::move(batch), want);
  }
}

void ChunkPlacer::plan_grants(Work& work, bool writes_more) {
  const auto& [core, written, committer, space, ledger, equal, writer] = parts_;
  if (core.error.has_value() || !space.may_ask()) return;
  if (writer.waiting().empty() && !writes_more) return;
  const std::uint64_t want = space.wanted_bytes(writer.waiting(), 0, committer.under_way());
  if (want > 0) send(work, {}, want);
}

void ChunkPlacer::plan_return(Work& work) {
  const SessionCore& core = parts_.core;
  if (core.state != SessionCore::State::kOpen || core.error.has_value()) return;
  if (parts_.space.drop_idle()) send(work, {}, 0);
}

void ChunkPlacer::send(Work& work, std::vector<OutChunkPtr> batch, std::uint64_t want) {
  SessionCore& core = parts_.core;
  msg::Place place;
  place.session = core.id;
  parts_.space.fill(place, parts_.writer.waiting(), want);
  for (const OutChunkPtr& chunk : batch) {
    place.chunks.push_back({chunk->chunk.name, chunk->chunk.length});
  }
  if (!batch.empty()) ++batches_in_flight_;
  core.call(work, std::move(place),
            [this, batch = std::move(batch), want,
             generation = core.manager_generation](const rpc::Answer& answer)
                STDCHK_REQUIRES(engine_lock) { on_placed(batch, want, generation, answer); });
}

void ChunkPlacer::on_placed(const std::vector<OutChunkPtr>& batch, std::uint64_t want,
                            std::uint64_t generation, const rpc::Answer& answer) {
  SessionCore& core = parts_.core;
  if (!batch.empty()) --batches_in_flight_;
  parts_.space.answered(want);
  core.schedule();
  core.notify();
  const auto* reply = answer.has_value() ? std::get_if<msg::Place::Reply>(&*answer) : nullptr;
  const bool no_room = !answer.has_value() && answer.error().error.code == Code::kNoSpace;
  const bool again = asks_again(generation, answer);
  if (no_room || again) {
    // The next call looks these chunks up again.
    for (const OutChunkPtr& chunk : batch) {
      chunk->step = Step::kAsking;
      to_ask_.push_back(chunk);
    }
    if (!again) no_space(answer.error());
    return;
  }
  if (reply == nullptr) {
    core.fail_with(answer.has_value() ? Error{Code::kMalformed, 0, "client.place"}
                                      : answer.error().error);
    for (const OutChunkPtr& chunk : batch) parts_.ledger.drop(*chunk, SlotState::kPlacing);
    return;
  }
  const std::uint64_t granted = parts_.space.add(reply->grants, want);
  take(batch, *reply);
  if (want > 0 && granted == 0 && !parts_.writer.waiting().empty()) {
    no_space(rpc::Failure{Error{Code::kNoSpace, 0, "client.place"}, {}, {}});
  }
}

/// Takes the answer for each chunk of a batch. The writer gets the chunks that the pool lacks.
void ChunkPlacer::take(const std::vector<OutChunkPtr>& batch, const msg::Place::Reply& reply) {
  std::vector<const Chunk*> existing(batch.size(), nullptr);
  for (const auto& found : reply.existing) {
    if (found.index < batch.size()) existing[found.index] = &found.chunk;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const OutChunkPtr& chunk = batch[i];
    if (parts_.ledger.unneeded(*chunk)) {
      parts_.ledger.drop(*chunk, SlotState::kPlacing);
    } else if (existing[i] != nullptr && existing[i]->length == chunk->chunk.length) {
      count_found(*chunk);
      const ChunkName name = chunk->chunk.name;
      chunk->chunk = *existing[i];
      chunk->chunk.name = name;
      parts_.ledger.stored(*chunk, SlotState::kPlacing);
    } else {
      parts_.core.naming->judge(chunk->plain_crc, chunk->chunk.length, false);
      parts_.writer.add(chunk);
    }
  }
}

void ChunkPlacer::no_space(const rpc::Failure& failure) {
  if (parts_.space.may_continue_with_fewer_copies(parts_.writer.waiting())) return;
  parts_.equal.give_up_similar();
  if (const auto why = parts_.space.no_space(failure)) parts_.core.fail_with(*why);
}

/// True when a call must be made again: an earlier manager got it, or the manager has not answered
/// for less than kOperationDeadline.
bool ChunkPlacer::asks_again(std::uint64_t generation, const rpc::Answer& answer) {
  SessionCore& core = parts_.core;
  if (core.error.has_value()) return false;
  const bool lost = !answer.has_value() && answer.error().error.code == Code::kManagerLost;
  const Time now = core.now();
  if (!lost) {
    lost_since_ = {};
  } else if (lost_since_ == Time{}) {
    lost_since_ = now - limits::kCallDeadline;
  }
  return generation != core.manager_generation ||
         (lost && now - lost_since_ < limits::kOperationDeadline);
}

void ChunkPlacer::drop_all() {
  std::deque<OutChunkPtr> chunks;
  chunks.swap(to_ask_);
  for (const OutChunkPtr& chunk : chunks) parts_.ledger.drop(*chunk, SlotState::kPlacing);
}

}  // namespace stdchk::client
