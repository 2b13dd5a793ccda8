// How a session continues with a manager of another epoch.
#include <unordered_set>
#include <utility>

#include "client/write/session.h"
#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {

void Session::manager_changed() {
  if (state_ == State::kEnded) return;
  if (error_.has_value() || close_sent_ || !can_resume_) return fenced();
  ++life_;
  resume_ = Resume::kWaits;
  resume_parts_.clear();
  next_resume_part_ = 0;
  // Only extents with stored chunks stay this session's. The similar version is no longer pinned.
  grants_ = {};
  returned_.clear();
  known_.clear();
  similar_.reset();
  given_up_.reset();
  shortage_ = false;
  fewer_places_ = false;
  short_of_places_ = {};
  no_space_ = 0;
  grants_not_before_ = {};
  if (commit_ == CommitStep::kSending) {
    commit_ = CommitStep::kFlushing;
    parts_.clear();
    next_part_ = 0;
  }
  host_.kick(*this);
}

/// Waits until the writes under way have ended with their links, and the calls as fenced. Then
/// reports to the manager which chunks are stored.
void Session::plan_resume(Work& work) {
  keep_promise_in_time();
  if (error_.has_value() || in_transport_ > 0 || calls_in_flight_ > 0) return;
  if (resume_ == Resume::kWaits) {
    build_resume();
    resume_ = Resume::kSending;
  }
  ++calls_in_flight_;
  ++figures_.manager_calls;
  work.calls.push_back({resume_parts_[next_resume_part_++],
                        [self = shared_from_this(), life = life_](const rpc::Answer& answer) {
                          const Lock lock(self->host_.shared().mutex);
                          self->on_resumed(life, answer);
                        }});
}

void Session::build_resume() {
  // Chunks that lack copies are not reported: all their copies are written again.
  for (const OutChunkPtr& chunk : to_carve_) chunk->chunk.copies.clear();
  msg::ResumeSession whole;
  // The request has the present client id, so that a yet newer manager refuses it. That manager
  // gets a request of its own.
  whole.client = host_.client();
  whole.session = id_;
  whole.file = file_;
  if (is_pending()) {
    whole.parent = parent_;
    whole.name = name_;
    whole.mode = attributes_.mode;
    whole.uid = attributes_.uid;
    whole.gid = attributes_.gid;
    whole.renamed = renamed_;
    whole.changed = changed_;
    whole.atime_ns = attributes_.atime_ns;
    whole.mtime_ns = attributes_.mtime_ns;
  }
  whole.base = attributes_.version;
  whole.copies = copies_;
  whole.truncated = attributes_.version != 0 && cut_ == 0;
  whole.opened = opened_after_;
  whole.waits_for_copies = client_waits_;
  resume_parts_.assign(1, whole);
  if (is_pending() && !xattrs_.empty()) {
    // Extended attributes may take much of a message, so they get one of their own.
    resume_parts_.front().xattrs.assign(xattrs_.begin(), xattrs_.end());
    resume_parts_.push_back(whole);
  }
  std::unordered_set<const OutChunk*> told;
  for (const auto& [offset, entry] : overlay_.entries()) {
    const OutChunk* const chunk = entry.piece.chunk.get();
    if (chunk == nullptr || chunk->step != OutChunk::Step::kStored || !told.insert(chunk).second) {
      continue;
    }
    const msg::ResumeSession& last = resume_parts_.back();
    if (last.stored.size() == page_chunks_max() || last.held.size() == limits::kPlaceBatchMax) {
      resume_parts_.push_back(whole);
    }
    msg::ResumeSession& part = resume_parts_.back();
    if (chunk->ours) {
      part.stored.push_back(chunk->chunk);
    } else {
      part.held.push_back({chunk->chunk.name, chunk->chunk.length});
    }
  }
  for (std::size_t i = 0; i < resume_parts_.size(); ++i) {
    resume_parts_[i].part = static_cast<std::uint32_t>(i);
    resume_parts_[i].last = i + 1 == resume_parts_.size();
  }
}

void Session::on_resumed(std::uint64_t life, const rpc::Answer& answer) {
  --calls_in_flight_;
  host_.kick(*this);
  if (life != life_ || error_.has_value()) return;
  const auto* reply =
      answer.has_value() ? std::get_if<msg::ResumeSession::Reply>(&*answer) : nullptr;
  // An answer that reports a commit is wrong when no commit was under way.
  const bool wrong = reply == nullptr || (reply->committed && commit_ == CommitStep::kNone);
  if (wrong) {
    log::warning(
        "file {}: the manager that has come back does not go on with it: {}", file_.value,
        answer.has_value() ? "an answer that makes no sense" : describe(answer.error().error));
    // Unlike fenced(), this still sends CloseSession: if only the answer was lost, the manager has
    // resumed the session.
    return fail_with(Error{Code::kFenced, 0, "client.session"});
  }
  if (next_resume_part_ < resume_parts_.size()) return;  // plan() sends the next one
  resume_ = Resume::kNone;
  resume_parts_.clear();
  avoid_.clear();
  abandoned_.clear();
  writes_not_before_ = {};
  host_.shared().changed.notify_all();
  if (reply->committed) on_committed({reply->attributes, 0, {}});
}

void Session::pending_renamed(FileId parent, std::string_view name) {
  if (!is_pending()) return;
  parent_ = parent;
  name_ = name;
  renamed_ = true;
}

void Session::pending_changed(const msg::SetAttributes& change) {
  if (!is_pending()) return;
  const auto has = [&](msg::SetMask bit) {
    return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
  };
  if (has(msg::SetMask::kMode)) attributes_.mode = change.mode & 07777;
  if (has(msg::SetMask::kUid)) attributes_.uid = change.uid;
  if (has(msg::SetMask::kGid)) attributes_.gid = change.gid;
  if (has(msg::SetMask::kAtime)) attributes_.atime_ns = change.atime_ns;
  if (has(msg::SetMask::kMtime)) attributes_.mtime_ns = change.mtime_ns;
  changed_ = true;
}

void Session::pending_changed(const msg::SetXattr& change) {
  if (!is_pending()) return;
  if (change.remove) {
    xattrs_.erase(change.name);
  } else {
    xattrs_[change.name] = change.value;
  }
  changed_ = true;
}

/// True when a call must be made again: it was made in an earlier life, or the manager has not
/// answered for less than kOperationDeadline.
bool Session::asks_again(std::uint64_t life, const rpc::Answer& answer) {
  if (error_.has_value()) return false;
  const bool lost = !answer.has_value() && answer.error().error.code == Code::kManagerLost;
  const Time now = host_.clock().now();
  if (!lost) {
    lost_since_ = {};
  } else if (lost_since_ == Time{}) {
    lost_since_ = now - limits::kCallDeadline;
  }
  return life != life_ || (lost && now - lost_since_ < limits::kOperationDeadline);
}

}  // namespace stdchk::client
