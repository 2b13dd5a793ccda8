// How a session becomes a version, and how the session ends.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "client/write/session.h"
#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {

CompletionPtr Session::start_sync() {
  auto done = std::make_shared<Completion>();
  seal_all();
  syncs_.push_back(Sync{host_.window().newest_age(), done});
  finish_syncs();
  host_.kick(*this);
  return done;
}

void Session::finish_syncs() {
  if (syncs_.empty()) return;
  const Window& window = host_.window();
  std::erase_if(syncs_, [&](const Sync& sync) {
    const std::size_t left = window.unstored(id_.value, sync.until);
    sync.done->moved = window.slot_count() - left;
    if (!error_.has_value() && left > 0) return false;
    sync.done->status = error_.has_value() ? Status(fail(*error_)) : Status{};
    return true;
  });
  host_.shared().changed.notify_all();
}

Result<CompletionPtr> Session::start_commit(bool end) {
  if (commit_ != CommitStep::kNone) {
    if (end) state_ = State::kEnding;
    if (commit_ == CommitStep::kFlushing) commit_ends_ |= end;
    return commit_done_;
  }
  auto done = std::make_shared<Completion>();
  if (error_.has_value()) {
    done->status = fail(*error_);
    if (end) abort(error_->code);
    return done;
  }
  if (state_ != State::kOpen) return fail(Code::kStale, "client.commit");
  if (!dirty_) {
    done->status = Status{};
    if (end) {
      state_ = State::kEnding;
      host_.kick(*this);
    }
    return done;
  }
  commit_ = CommitStep::kFlushing;
  commit_ends_ = end;
  commit_done_ = done;
  if (end) state_ = State::kEnding;
  seal_all();
  host_.kick(*this);
  return done;
}

void Session::promise_commit() {
  if (commit_ == CommitStep::kNone || promised_) return;
  promised_ = true;
  promised_by_ = host_.clock().now() + kEarlyCommit;
  host_.kick(*this);
}

/// Fails a promised commit at its deadline. Calls to the manager end by their own deadlines.
void Session::keep_promise_in_time() {
  if (!promised_ || error_.has_value()) return;
  const Duration left = promised_by_ - host_.clock().now();
  if (left <= Duration::zero()) return fail_with(Error{Code::kDeadline, 0, "client.early close"});
  if (!std::exchange(promise_timed_, true)) host_.kick_after(*this, left);
}

void Session::plan_commit(Work& work) {
  if (commit_ == CommitStep::kNone || commit_in_flight_) return;
  keep_promise_in_time();
  if (commit_ == CommitStep::kNone) return;
  if (error_.has_value()) return finish_commit(fail(*error_));
  if (commit_ == CommitStep::kFlushing) {
    if (pipeline_ > 0 || !all_cut()) return;
    build_commit();
    commit_ = CommitStep::kSending;
  }
  send_commit_part(work);
}

/// Returns the most chunks in one message; fewer when chunks have many places.
std::size_t Session::page_chunks_max() const {
  return limits::kMapPageSlicesMax / ((places_ + 3) / 4);
}

/// Builds the Commit messages of all written ranges, each short enough to be sent.
void Session::build_commit() {
  parts_.clear();
  next_part_ = 0;
  parts_.emplace_back();
  std::unordered_map<const OutChunk*, std::uint32_t> numbers;
  for (const auto& [offset, entry] : overlay_.entries()) {
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
    parts_[i].session = id_;
    parts_[i].part = static_cast<std::uint32_t>(i);
    parts_[i].last = i + 1 == parts_.size();
  }
  msg::Commit& last = parts_.back();
  last.set_size = set_size_;
  last.size_bytes = size_;
  last.cut_before = cut_ != std::numeric_limits<std::uint64_t>::max();
  last.cut_bytes = last.cut_before ? cut_ : 0;
  last.mtime_ns = host_.clock().wall_ns();
  last.abandoned = abandoned_;
  last.end = commit_ends_;
  last.naming = naming_->state();
  last.same_as = same_as_;
}

void Session::send_commit_part(Work& work) {
  commit_in_flight_ = true;
  ++calls_in_flight_;
  ++figures_.manager_calls;
  work.calls.push_back(
      {parts_[next_part_++], [self = shared_from_this(), life = life_](rpc::Answer answer) {
         const Lock lock(self->host_.shared().mutex);
         self->on_committed_part(life, std::move(answer));
       }});
}

void Session::on_committed_part(std::uint64_t life, rpc::Answer answer) {
  --calls_in_flight_;
  commit_in_flight_ = false;
  host_.kick(*this);
  if (life != life_) return;  // a new manager has come, and the commit begins again
  if (!answer.has_value()) return finish_commit(fail(answer.error().error));
  auto* reply = std::get_if<msg::Commit::Reply>(&*answer);
  if (reply == nullptr) return finish_commit(fail(Code::kMalformed, "client.commit"));
  ++commit_done_->moved;
  if (next_part_ < parts_.size()) return;  // plan() sends the next one
  if (commit_ends_) close_sent_ = true;
  on_committed(*reply);
}

void Session::on_committed(const msg::Commit::Reply& reply) {
  // The committed content becomes the base. Its extents belong to the version.
  for (const auto& [offset, entry] : overlay_.entries()) entry.piece.chunk->ours = false;
  overlay_.clear();
  own_names_.clear();
  abandoned_.clear();
  if (reply.conflicts > 0) {
    log::warning("file {}: {} ranges that others have committed since it was opened were replaced",
                 file_.value, reply.conflicts);
  }
  attributes_ = reply.attributes;
  host_.committed(reply);
  size_ = attributes_.size_bytes;
  cut_ = std::numeric_limits<std::uint64_t>::max();
  set_size_ = false;
  dirty_ = false;
  same_as_ = 0;
  base_.reset();
  count_commit();
  finish_commit({});
}

/// Adds bytes and time of this commit to the figures for AT (achieved throughput). A commit without
/// bytes is not counted.
void Session::count_commit() {
  const std::uint64_t bytes =
      figures_.bytes_written - std::exchange(bytes_committed_, figures_.bytes_written);
  if (bytes == 0) return;
  host_.totals().committed_bytes += bytes;
  const Duration took = host_.clock().now() - std::exchange(commit_from_, Time{});
  host_.totals().open_to_commit_ns += static_cast<std::uint64_t>(took.count());
}

void Session::finish_commit(Status status) {
  parts_.clear();
  next_part_ = 0;
  commit_ = CommitStep::kNone;
  const CompletionPtr done = std::move(commit_done_);
  commit_done_ = nullptr;
  const bool promised = std::exchange(promised_, false);
  promise_timed_ = false;
  if (!status.has_value()) {
    if (!error_.has_value()) fail_with(status.error());
    if (promised) host_.promise_broken(*this);
    if (commit_ends_) {
      state_ = State::kEnding;
      log::warning("file {}: what was written is lost, the commit has failed: {}", file_.value,
                   describe(status.error()));
    }
  }
  if (done != nullptr) done->status = std::move(status);
  host_.kick(*this);
  host_.shared().changed.notify_all();
}

void Session::abort(Code why) {
  if (state_ == State::kEnded) return;
  if (!error_.has_value()) {
    fail_with(Error{why, 0, "client.abort"});
  }
  state_ = State::kEnding;
  host_.kick(*this);
}

/// Ends the session once nothing of it is under way: tells the manager, then the host.
void Session::plan_end(Work& work) {
  if (state_ != State::kEnding || commit_ != CommitStep::kNone) return;
  if (pipeline_ > 0 || !all_cut() || in_transport_ > 0 || calls_in_flight_ > 0) return;
  if (close_sent_) {
    state_ = State::kEnded;
    if (!error_.has_value() && (has_unnamed_ || figures_.bytes_named > 0)) {
      naming_->committed(!has_unnamed_);
    }
    overlay_.clear();
    base_.reset();
    known_.clear();
    similar_.reset();
    given_up_.reset();
    host_.shared().changed.notify_all();
    return host_.ended(*this);
  }
  close_sent_ = true;
  msg::CloseSession close;
  close.session = id_;
  close.aborted = error_.has_value();
  close.aborted_bytes = error_.has_value() ? figures_.bytes_written : 0;
  close.writes_in_flight = !abandoned_.empty();
  ++calls_in_flight_;
  ++figures_.manager_calls;
  work.calls.push_back({std::move(close), [self = shared_from_this()](rpc::Answer) {
                          // A lost answer does no harm: the manager ends the sessions of silent
                          // clients.
                          const Lock lock(self->host_.shared().mutex);
                          --self->calls_in_flight_;
                          self->host_.kick(*self);
                        }});
}

}  // namespace stdchk::client
