#include "client/write/committer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {

Committer::Committer(SessionCore& core, WrittenFile& written, std::function<void()> committed)
    : core_(core), written_(written), committed_(std::move(committed)), changed_from_(core.now()) {}

CompletionPtr Committer::start_sync() {
  auto done = std::make_shared<Completion>();
  syncs_.push_back(Sync{core_.host.window().newest_age(), done});
  finish_syncs();
  core_.schedule();
  return done;
}

void Committer::finish_syncs() {
  if (syncs_.empty()) return;
  const Window& window = core_.host.window();
  std::erase_if(syncs_, [&](const Sync& sync) {
    const std::size_t left = window.unstored(core_.id.value, sync.until);
    sync.done->moved = window.slot_count() - left + sync.chunks_ended;
    if (!core_.error.has_value() && left > 0) return false;
    sync.done->end(core_.error.has_value() ? Status(fail(*core_.error)) : Status{});
    return true;
  });
  core_.notify();
}

void Committer::chunk_ended(std::uint64_t slot_age) {
  if (done_ != nullptr) ++done_->moved;
  // A slot has many chunks. While the pool is nearly full, each of them may wait for space.
  for (Sync& sync : syncs_) {
    if (slot_age <= sync.until) ++sync.chunks_ended;
  }
}

CompletionPtr Committer::join(bool end) {
  if (step_ == Step::kFlushing) ends_ |= end;
  return done_;
}

CompletionPtr Committer::start(bool end) {
  STDCHK_ASSERT(!under_way());
  step_ = Step::kFlushing;
  ends_ = end;
  done_ = std::make_shared<Completion>();
  return done_;
}

void Committer::promise() {
  if (!under_way() || promised_) return;
  promised_ = true;
  promised_by_ = core_.now() + kEarlyCommit;
  core_.schedule();
}

void Committer::keep_promise_in_time() {
  if (!promised_ || core_.error.has_value()) return;
  const Duration left = promised_by_ - core_.now();
  if (left <= Duration::zero()) {
    return core_.fail_with(Error{Code::kDeadline, 0, "client.early close"});
  }
  if (!std::exchange(promise_timed_, true)) core_.schedule_after(left);
}

void Committer::plan(Work& work, bool all_stored, const std::vector<Extent>& abandoned) {
  if (!under_way() || in_flight_) return;
  keep_promise_in_time();
  if (!under_way()) return;
  if (core_.error.has_value()) return finish(fail(*core_.error));
  if (step_ == Step::kFlushing) {
    if (!all_stored) return;
    build(abandoned);
    step_ = Step::kSending;
  }
  send_part(work);
}

std::size_t Committer::page_chunks_max() const {
  return limits::kMapPageSlicesMax / ((core_.places + 3) / 4);
}

/// Builds the Commit messages of all written ranges, each short enough to be sent.
void Committer::build(const std::vector<Extent>& abandoned) {
  parts_.clear();
  next_part_ = 0;
  parts_.emplace_back();
  std::unordered_map<const OutChunk*, std::uint32_t> numbers;
  for (const auto& [offset, entry] : written_.overlay().entries()) {
    STDCHK_ASSERT(entry.piece.chunk != nullptr);
    const OutChunk& chunk = *entry.piece.chunk;
    STDCHK_ASSERT(chunk.step == OutChunk::Step::kStored);  // rule M1
    if (parts_.back().written.slices.size() >= page_chunks_max()) {
      parts_.emplace_back();
      numbers.clear();
    }
    ChunkMap& map = parts_.back().written;
    const auto [number, is_new] =
        numbers.emplace(&chunk, static_cast<std::uint32_t>(map.chunks.size()));
    if (is_new) map.chunks.push_back(chunk.chunk);
    map.slices.push_back(Slice{offset, static_cast<std::uint32_t>(entry.length), entry.piece.offset,
                               number->second});
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].session = core_.id;
    parts_[i].part = static_cast<std::uint32_t>(i);
    parts_[i].last = i + 1 == parts_.size();
  }
  msg::Commit& last = parts_.back();
  last.set_size = written_.set_size();
  last.size_bytes = written_.size();
  last.cut_before = written_.cut() != WrittenFile::kNoCut;
  last.cut_bytes = last.cut_before ? written_.cut() : 0;
  for (const auto& [from, to] : written_.holes()) {
    const std::uint64_t end = std::min(to, written_.cut());
    if (from < end) last.holes.push_back(Hole{from, end - from});
  }
  last.mtime_ns = core_.host.clock().wall_ns();
  last.abandoned = abandoned;
  last.end = ends_;
  last.naming = core_.naming->state();
  last.same_as = same_as_;
  last.appends = core_.appends.value_or(false);
  last.append_from = core_.attributes.size_bytes;
}

void Committer::send_part(Work& work) {
  in_flight_ = true;
  core_.call(
      work, parts_[next_part_++],
      [this, generation = core_.manager_generation](rpc::Answer answer)
          STDCHK_REQUIRES(engine_lock) { on_part(generation, std::move(answer)); },
      core_.host.may_commit());
}

void Committer::on_part(std::uint64_t generation, rpc::Answer answer) {
  in_flight_ = false;
  core_.schedule();
  if (generation != core_.manager_generation) return;  // the commit begins again with a new manager
  if (!answer.has_value()) return finish(fail(answer.error().error));
  auto* reply = std::get_if<msg::Commit::Reply>(&*answer);
  if (reply == nullptr) return finish(fail(Code::kMalformed, "client.commit"));
  ++done_->moved;
  if (next_part_ < parts_.size()) return;  // plan() sends the next one
  closed_ = closed_ || ends_;
  committed(*reply);
}

void Committer::committed(const msg::Commit::Reply& reply) {
  // The committed content becomes the base. Its extents belong to the version.
  for (const auto& [offset, entry] : written_.overlay().entries()) entry.piece.chunk->ours = false;
  written_.overlay().clear();
  committed_();
  if (reply.conflicts > 0) {
    log::warning("file {}: this commit has replaced {} ranges that others committed since the open",
                 core_.file.value, reply.conflicts);
  }
  core_.attributes = reply.attributes;
  core_.host.committed(reply);
  written_.committed(core_.attributes.size_bytes);
  same_as_ = 0;
  count();
  finish({});
}

void Committer::begin_change() {
  if (changed_from_ == Time{}) changed_from_ = core_.now();
}

/// Adds bytes and time of this commit to the figures for AT (achieved throughput). A commit without
/// bytes is not counted.
void Committer::count() {
  const std::uint64_t all = core_.figures.bytes_written;
  const std::uint64_t bytes = all - std::exchange(bytes_committed_, all);
  if (bytes == 0) return;
  msg::WriterTotals& totals = core_.host.totals();
  totals.committed_bytes += bytes;
  const Duration took = core_.now() - std::exchange(changed_from_, Time{});
  totals.open_to_commit_ns += static_cast<std::uint64_t>(took.count());
}

void Committer::finish(Status status) {
  parts_.clear();
  next_part_ = 0;
  step_ = Step::kNone;
  const CompletionPtr done = std::move(done_);
  done_ = nullptr;
  const bool promised = std::exchange(promised_, false);
  promise_timed_ = false;
  if (!status.has_value()) {
    if (!core_.error.has_value()) core_.fail_with(status.error());
    if (promised) core_.host.promise_broken(core_.session);
    if (ends_) {
      core_.state = SessionCore::State::kEnding;
      log::warning("file {}: the commit has failed, and the written bytes are lost: {}",
                   core_.file.value, describe(status.error()));
    }
  }
  if (done != nullptr) done->end(std::move(status));
  core_.schedule();
  core_.notify();
}

void Committer::failed(const Error& why) {
  if (done_ != nullptr && !in_flight_) finish(fail(why));
}

void Committer::begin_again() {
  if (step_ != Step::kSending) return;
  step_ = Step::kFlushing;
  parts_.clear();
  next_part_ = 0;
}

}  // namespace stdchk::client
