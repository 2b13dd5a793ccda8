#include "client/engine/lock_keeper.h"

#include <optional>
#include <variant>
#include <vector>

#include "core/base/log.h"

namespace stdchk::client {
namespace {

FileLock lock_of(const msg::SetLock& request) {
  return {request.file, request.space, request.kind, {ClientId{}, request.owner},
          request.pid,  request.first, request.last};
}

std::optional<msg::LockOutcome> outcome_of(const rpc::Answer& answer) {
  if (!answer.has_value()) return std::nullopt;
  const auto* const reply = std::get_if<msg::SetLock::Reply>(&*answer);
  return reply == nullptr ? std::nullopt : std::optional(reply->outcome);
}

}  // namespace

void LockKeeper::lock(const msg::SetLock& request, Done done) {
  auto made = std::make_shared<Request>(Request{request, std::move(done)});
  if (request.ticket != 0) waits_[request.ticket] = made;
  send(made);
}

void LockKeeper::send(const RequestPtr& request) {
  request->wanted.client = client_;
  call_(request->wanted, [this, request](const rpc::Answer& answer) { answered(request, answer); });
}

void LockKeeper::cancel(std::uint64_t ticket) {
  const auto found = waits_.find(ticket);
  if (found == waits_.end()) return;
  found->second->cancelled = true;
  // The answer to the request itself ends the wait.
  call_(msg::CancelLock{client_, ticket}, [](const rpc::Answer&) {});
}

void LockKeeper::answered(const RequestPtr& request, const rpc::Answer& answer) {
  std::optional<Result<msg::LockOutcome>> result;
  {
    const Lock lock(shared_.mutex);
    if (repeats(request, answer)) return;
    if (request->wanted.ticket != 0) waits_.erase(request->wanted.ticket);
    result = settle(*request, answer);
  }
  request->done(*result);
}

/// Repeats the request unless its answer grants or refuses the lock.
bool LockKeeper::repeats(const RequestPtr& request, const rpc::Answer& answer) {
  const bool waits = request->wanted.ticket != 0;
  const auto outcome = outcome_of(answer);
  if (request->cancelled) return false;
  if (outcome == msg::LockOutcome::kWaits) {
    send(request);
    return true;
  }
  const bool releases = request->wanted.kind == msg::LockKind::kNone;
  // Another manager, or another number of this client, answers the next time.
  const bool lost = !answer.has_value() && !releases &&
                    (answer.error().error.code == Code::kFenced ||
                     (waits && answer.error().error.code == Code::kManagerLost));
  if (outcome != msg::LockOutcome::kRecovering && !lost) return false;
  later_(kPause, [this, request] {
    const Lock lock(shared_.mutex);
    send(request);
  });
  return true;
}

Result<msg::LockOutcome> LockKeeper::settle(const Request& request, const rpc::Answer& answer) {
  const auto outcome = outcome_of(answer);
  const bool releases = request.wanted.kind == msg::LockKind::kNone;
  if (outcome == msg::LockOutcome::kGranted || releases) note(request.wanted);
  if (request.cancelled) {
    // The lock was granted before the manager heard of the end of the wait.
    if (outcome == msg::LockOutcome::kGranted && !releases) {
      msg::SetLock release = request.wanted;
      release.kind = msg::LockKind::kNone;
      release.ticket = 0;
      note(release);
      call_(release, [](const rpc::Answer&) {});
    }
    return fail(Code::kCancelled, "client.lock");
  }
  // A lock of an earlier client number, or of an earlier manager, has ended.
  if (releases && !answer.has_value() && answer.error().error.code == Code::kFenced) {
    return msg::LockOutcome::kGranted;
  }
  if (!answer.has_value()) return fail(answer.error().error);
  if (!outcome.has_value()) return fail(Code::kMalformed, "client.lock");
  return *outcome;
}

void LockKeeper::note(const msg::SetLock& granted) {
  const Key key{granted.file, granted.space};
  const FileLock lock = lock_of(granted);
  if (granted.kind != msg::LockKind::kNone) return held_[key].put(lock);
  const auto of_file = held_.find(key);
  if (of_file == held_.end()) return;
  of_file->second.cut(lock);
  if (of_file->second.empty()) held_.erase(of_file);
}

void LockKeeper::registered(ClientId client, bool same_client, bool same_epoch) {
  client_ = client;
  if (same_client) return;
  std::vector<FileLock> all;
  for (const auto& [key, locks] : held_) {
    all.insert(all.end(), locks.all().begin(), locks.all().end());
  }
  if (same_epoch && !all.empty()) {
    log::warning("{} locks on files are lost: the manager did not hear this client in time",
                 all.size());
    return held_.clear();
  }
  for (const FileLock& lock : all) claim(lock);
}

void LockKeeper::claim(const FileLock& lock) {
  msg::SetLock request{client_,  lock.file,  lock.space, lock.kind, lock.owner.number,
                       lock.pid, lock.first, lock.last,  0,         true};
  call_(request, [this, request](const rpc::Answer& answer) {
    const auto outcome = outcome_of(answer);
    if (outcome == msg::LockOutcome::kGranted) return;
    const Lock guard(shared_.mutex);
    // Another registration has sent the claims again.
    if (request.client != client_) return;
    log::warning("a lock on file {} is lost: the next manager did not grant it again",
                 request.file.value);
    msg::SetLock lost = request;
    lost.kind = msg::LockKind::kNone;
    note(lost);
  });
}

}  // namespace stdchk::client
