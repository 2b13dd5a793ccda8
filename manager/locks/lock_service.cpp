#include "manager/locks/lock_service.h"

#include "core/base/limits.h"

namespace stdchk::manager {
namespace {

template <class Request>
FileLock lock_of(const ClientRecord& client, const Request& request) {
  FileLock lock;
  lock.file = request.file;
  lock.space = request.space;
  lock.kind = request.kind;
  lock.owner = {client.id, request.owner};
  lock.first = request.first;
  lock.last = request.last;
  return lock;
}

void answer(const Call& call, msg::LockOutcome outcome) {
  call.answer(msg::SetLock::Reply{outcome});
}

}  // namespace

void LockService::serve(ClientRecord& client, const msg::SetLock& request, const Call& call) {
  FileLock lock = lock_of(client, request);
  lock.pid = request.pid;
  if (lock.first > lock.last) return call.fail(Code::kInvalidArgument, "lock");
  if (lock.kind == msg::LockKind::kNone) {
    if (const Status released = table_.release(lock); !released) {
      return call.fail(released.error());
    }
    answer(call, msg::LockOutcome::kGranted);
    return grant();
  }
  if (sessions_.resuming() && !request.claims) return answer(call, msg::LockOutcome::kRecovering);
  const bool waits = request.ticket != 0 && !request.claims;
  const WaitId id{client.id, request.ticket};
  const auto outcome = waits ? table_.wait(lock, id, pool_.now(), call.deadline() + limits::kLease)
                             : table_.take(lock);
  if (!outcome) return call.fail(outcome.error());
  if (*outcome != msg::LockOutcome::kWaits) {
    answer(call, *outcome);
  } else if (const auto [at, added] = calls_.try_emplace(id, call); !added) {
    // The client has given the earlier call up.
    answer(at->second, msg::LockOutcome::kWaits);
    at->second = call;
  }
  // flock() may have given up a lock.
  grant();
}

void LockService::serve(ClientRecord& client, const msg::CancelLock& request, const Call& call) {
  const WaitId id{client.id, request.ticket};
  table_.cancel(id);
  if (const auto waiting = calls_.find(id); waiting != calls_.end()) {
    answer(waiting->second, msg::LockOutcome::kRefused);
    calls_.erase(waiting);
  }
  call.answer(msg::CancelLock::Reply{});
}

void LockService::serve(ClientRecord& client, const msg::GetLock& request, const Call& call) {
  FileLock wanted = lock_of(client, request);
  if (wanted.first > wanted.last || wanted.kind == msg::LockKind::kNone) {
    return call.fail(Code::kInvalidArgument, "get lock");
  }
  const auto held = table_.excluding(wanted);
  msg::GetLock::Reply reply;
  if (held) {
    const bool same_client = held->owner.client == client.id;
    reply = {held->kind, held->first, held->last, same_client ? held->pid : 0};
  }
  call.answer(reply);
}

void LockService::end_waits(const std::vector<WaitId>& ended, msg::LockOutcome outcome) {
  for (const WaitId& id : ended) {
    const auto call = calls_.find(id);
    answer(call->second, outcome);
    calls_.erase(call);
  }
}

void LockService::grant() {
  const auto is_there = [this](const WaitId& one) { return calls_.contains(one); };
  bool dropped = true;
  while (dropped) {
    end_waits(table_.grant(is_there, pool_.now()), msg::LockOutcome::kGranted);
    const auto deadlocked = table_.drop_deadlocked(is_there);
    end_waits(deadlocked, msg::LockOutcome::kDeadlock);
    // A request behind a dropped one may get its lock now.
    dropped = !deadlocked.empty();
  }
}

void LockService::end(ClientId client) {
  table_.end(client);
  std::erase_if(calls_, [&](const auto& waiting) {
    if (waiting.first.client != client) return false;
    waiting.second.fail(Code::kFenced, "lock");
    return true;
  });
  grant();
}

void LockService::tick() {
  std::erase_if(calls_, [&](const auto& waiting) {
    if (pool_.now() + limits::kHeartbeatInterval < waiting.second.deadline()) return false;
    answer(waiting.second, msg::LockOutcome::kWaits);
    return true;
  });
  table_.expire(pool_.now());
  // Some requests have waited for kPassAfter, so later requests may pass them.
  grant();
}

}  // namespace stdchk::manager
