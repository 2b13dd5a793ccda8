#include "client/write/resumer.h"

#include <unordered_set>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/access_list.h"

namespace stdchk::client {

Resumer::Resumer(const Parts& parts, const msg::OpenSession& request, std::uint64_t opened_after)
    : parts_(parts),
      opened_after_(opened_after),
      copies_(request.copies),
      client_waits_(request.waits_for_copies),
      parent_(request.unnamed ? FileId{} : request.parent),
      name_(request.name),
      renamed_(request.unnamed) {}

void Resumer::begin() {
  step_ = Step::kWaits;
  messages_.clear();
  next_ = 0;
}

void Resumer::plan(Work& work) {
  SessionCore& core = parts_.core;
  parts_.committer.keep_promise_in_time();
  if (core.error.has_value() || parts_.writer.in_transport() > 0 || core.calls_in_flight > 0) {
    return;
  }
  if (step_ == Step::kWaits) {
    build();
    step_ = Step::kSending;
  }
  core.call(work, messages_[next_++],
            [this, generation = core.manager_generation](const rpc::Answer& answer)
                STDCHK_REQUIRES(engine_lock) { on_answer(generation, answer); });
}

/// Builds the messages that report the stored chunks, each within the limit of a message.
void Resumer::build() {
  const SessionCore& core = parts_.core;
  // Chunks that lack copies are not reported: all their copies are written again.
  parts_.writer.forget_copies();
  msg::ResumeSession whole;
  // The request has the present client id, so that a yet newer manager refuses it. That manager
  // gets a request of its own.
  whole.client = core.host.client();
  whole.session = core.id;
  whole.file = core.file;
  if (is_pending()) {
    whole.parent = parent_;
    whole.name = name_;
    whole.mode = core.attributes.mode;
    whole.uid = core.attributes.uid;
    whole.gid = core.attributes.gid;
    whole.renamed = renamed_;
    whole.changed = changed_;
    whole.atime_ns = core.attributes.atime_ns;
    whole.mtime_ns = core.attributes.mtime_ns;
  }
  whole.base = core.attributes.version;
  whole.copies = copies_;
  whole.truncated = core.attributes.version != 0 && parts_.written.cut() == 0;
  whole.opened = opened_after_;
  whole.waits_for_copies = client_waits_;
  messages_.assign(1, whole);
  if (is_pending() && !xattrs_.empty()) {
    // Extended attributes may take much of a message, so they get one of their own.
    messages_.front().xattrs.assign(xattrs_.begin(), xattrs_.end());
    messages_.push_back(whole);
  }
  std::unordered_set<const OutChunk*> reported;
  for (const auto& [offset, entry] : parts_.written.overlay().entries()) {
    const OutChunk* const chunk = entry.piece.chunk.get();
    if (chunk == nullptr || chunk->step != OutChunk::Step::kStored ||
        !reported.insert(chunk).second) {
      continue;
    }
    const msg::ResumeSession& last = messages_.back();
    if (last.stored.size() == parts_.committer.page_chunks_max() ||
        last.held.size() == limits::kPlaceBatchMax) {
      messages_.push_back(whole);
    }
    msg::ResumeSession& part = messages_.back();
    if (chunk->ours) {
      part.stored.push_back(chunk->chunk);
    } else {
      part.held.push_back({chunk->chunk.name, chunk->chunk.length});
    }
  }
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    messages_[i].part = static_cast<std::uint32_t>(i);
    messages_[i].last = i + 1 == messages_.size();
  }
}

void Resumer::on_answer(std::uint64_t generation, const rpc::Answer& answer) {
  SessionCore& core = parts_.core;
  core.schedule();
  if (generation != core.manager_generation || core.error.has_value()) return;
  const auto* reply =
      answer.has_value() ? std::get_if<msg::ResumeSession::Reply>(&*answer) : nullptr;
  // An answer that reports a commit is wrong when no commit was under way.
  const bool wrong = reply == nullptr || (reply->committed && !parts_.committer.under_way());
  if (wrong) {
    log::warning("file {}: the restarted manager does not resume the session: {}", core.file.value,
                 answer.has_value() ? "its answer is malformed" : describe(answer.error().error));
    // Unlike Session::fenced(), this still sends CloseSession: if only the answer was lost, the
    // manager has resumed the session.
    return core.fail_with(Error{Code::kFenced, 0, "client.session"});
  }
  if (next_ < messages_.size()) return;  // plan() sends the next one
  step_ = Step::kNone;
  messages_.clear();
  parts_.space.resumed();
  parts_.writer.resumed();
  core.notify();
  if (reply->committed) parts_.committer.committed({reply->attributes, 0, {}});
}

void Resumer::renamed(FileId parent, std::string_view name) {
  if (!is_pending()) return;
  // Another directory gives no access list, or another one, to a file that is made again.
  if (parts_.core.attributes.has_access_list && parent && parent != parent_) forbid_resume();
  parent_ = parent;
  name_ = name;
  renamed_ = true;
}

void Resumer::changed(const msg::SetAttributes& change) {
  if (!is_pending()) return;
  const auto has = [&](msg::SetMask bit) {
    return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
  };
  Attributes& attributes = parts_.core.attributes;
  if (has(msg::SetMask::kMode)) attributes.mode = change.mode & 07777;
  if (has(msg::SetMask::kUid)) attributes.uid = change.uid;
  if (has(msg::SetMask::kGid)) attributes.gid = change.gid;
  if (has(msg::SetMask::kAtime)) attributes.atime_ns = change.atime_ns;
  if (has(msg::SetMask::kMtime)) attributes.mtime_ns = change.mtime_ns;
  changed_ = true;
}

void Resumer::changed(const msg::SetXattr& change) {
  if (!is_pending()) return;
  if (change.remove) {
    xattrs_.erase(change.name);
  } else {
    xattrs_[change.name] = change.value;
    if (change.name == kXattrAccessList) {
      std::uint32_t& mode = parts_.core.attributes.mode;
      if (const auto list = AccessList::parse(change.value)) {
        mode = with_permissions(mode, list->mode());
      }
    }
  }
  changed_ = true;
}

}  // namespace stdchk::client
