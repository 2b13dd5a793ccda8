#include "manager/locks/lock_table.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace stdchk::manager {
namespace {

/// A cut in the middle of a lock leaves two locks.
constexpr std::size_t kCutAddsMax = 1;
/// A new lock cuts the owner's lock on the same bytes, and is added.
constexpr std::size_t kPutAddsMax = kCutAddsMax + 1;

tl::unexpected<Error> no_room() { return fail(Code::kSystem, "manager.lock", ENOLCK); }

}  // namespace

/// Returns the lock with the lowest first byte when several exclude `wanted`, as F_GETLK does.
std::optional<FileLock> LockTable::excluding(const FileLock& wanted) const {
  const auto of_file = held_.find({wanted.file, wanted.space});
  if (of_file == held_.end()) return std::nullopt;
  std::optional<FileLock> first;
  for (const FileLock& held : of_file->second.all()) {
    if (excludes(held, wanted) && (!first || held.first < first->first)) first = held;
  }
  return first;
}

/// Returns true when `added` more locks or waits do not exceed kLocksMax.
bool LockTable::has_room(std::size_t added) const {
  return lock_count_ + waits_.size() + added <= kLocksMax;
}

void LockTable::cut(const FileLock& range) {
  const auto of_file = held_.find({range.file, range.space});
  if (of_file == held_.end()) return;
  const std::size_t before = of_file->second.size();
  of_file->second.cut(range);
  lock_count_ = lock_count_ - before + of_file->second.size();
  if (of_file->second.empty()) held_.erase(of_file);
}

void LockTable::put(const FileLock& lock) {
  if (lock.space == msg::LockSpace::kRecord && !waits_.empty()) gained_.insert(lock.owner);
  FileLocks& of_file = held_[{lock.file, lock.space}];
  const std::size_t before = of_file.size();
  of_file.put(lock);
  lock_count_ = lock_count_ - before + of_file.size();
}

/// flock(2) gives up the lock before it waits for a lock of the other kind. Two owners that both
/// want more than their shared lock would otherwise wait for each other.
void LockTable::give_up_converted(const FileLock& wanted) {
  if (wanted.space != msg::LockSpace::kFlock) return;
  const auto of_file = held_.find({wanted.file, wanted.space});
  if (of_file == held_.end()) return;
  const bool other_kind = std::ranges::any_of(of_file->second.all(), [&](const FileLock& lock) {
    return lock.owner == wanted.owner && lock.kind != wanted.kind;
  });
  if (other_kind) cut(wanted);
}

Result<msg::LockOutcome> LockTable::take(const FileLock& wanted) {
  if (!has_room(kPutAddsMax)) return no_room();
  give_up_converted(wanted);
  if (excluding(wanted)) return msg::LockOutcome::kRefused;
  put(wanted);
  return msg::LockOutcome::kGranted;
}

/// Returns true when the owner of `wanted`, or its process, has a lock on the file.
bool LockTable::has_lock(const FileLock& wanted) const {
  const auto of_file = held_.find({wanted.file, wanted.space});
  return of_file != held_.end() &&
         std::ranges::any_of(of_file->second.all(), [&](const FileLock& held) {
           return held.owner == wanted.owner || (held.owner.client == wanted.owner.client &&
                                                 held.pid == wanted.pid && held.pid != 0);
         });
}

/// Returns true when a request before `end` waits for a lock that would exclude `wanted`.
bool LockTable::is_queued_before(const FileLock& wanted, Waits::const_iterator end) const {
  const auto before = [&](const Wait& wait) {
    return wait.wanted.file == wanted.file && wait.wanted.space == wanted.space &&
           excludes(wait.wanted, wanted);
  };
  return std::any_of(waits_.begin(), end, before) && !has_lock(wanted);
}

Result<msg::LockOutcome> LockTable::wait(const FileLock& wanted, const WaitId& id, Time now,
                                         Time until) {
  if (!has_room(kPutAddsMax)) return no_room();
  give_up_converted(wanted);
  const auto known = std::ranges::find(waits_, id, &Wait::id);
  const bool is_known = known != waits_.end();
  const bool passes = is_known && now >= known->since + kPassAfter;
  const bool excluded = excluding(wanted).has_value();
  if (!excluded && (passes || !is_queued_before(wanted, known))) {
    put(wanted);
    if (is_known) waits_.erase(known);
    return msg::LockOutcome::kGranted;
  }
  if (excluded && closes_cycle(wanted)) {
    if (is_known) waits_.erase(known);
    return msg::LockOutcome::kDeadlock;
  }
  if (is_known) {
    known->until = until;
    return msg::LockOutcome::kWaits;
  }
  waits_.push_back({id, wanted, now, until});
  return msg::LockOutcome::kWaits;
}

Status LockTable::release(const FileLock& range) {
  if (!has_room(kCutAddsMax)) return no_room();
  cut(range);
  return {};
}

void LockTable::erase_wait(const WaitId& id) {
  waits_.remove_if([&](const Wait& wait) { return wait.id == id; });
}

/// True when the owner of `wanted` would wait for an owner that waits, directly or through others,
/// for the owner of `wanted`. Only record locks count, as on a local file system.
bool LockTable::closes_cycle(const FileLock& wanted) const {
  if (wanted.space != msg::LockSpace::kRecord) return false;
  std::set<LockOwner> seen;
  std::vector<const FileLock*> todo{&wanted};
  while (!todo.empty()) {
    const FileLock& at = *todo.back();
    todo.pop_back();
    const auto of_file = held_.find({at.file, at.space});
    if (of_file == held_.end()) continue;
    for (const FileLock& held : of_file->second.all()) {
      if (!excludes(held, at)) continue;
      if (held.owner == wanted.owner) return true;
      if (!seen.insert(held.owner).second) continue;
      for (const Wait& wait : waits_) {
        if (wait.wanted.owner == held.owner && wait.wanted.space == msg::LockSpace::kRecord) {
          todo.push_back(&wait.wanted);
        }
      }
    }
  }
  return false;
}

std::vector<WaitId> LockTable::grant(const std::function<bool(const WaitId&)>& is_there, Time now) {
  std::vector<WaitId> granted;
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const bool passes = now >= wait->since + kPassAfter;
    if (excluding(wait->wanted) || !is_there(wait->id) ||
        (!passes && is_queued_before(wait->wanted, wait))) {
      ++wait;
      continue;
    }
    put(wait->wanted);
    granted.push_back(wait->id);
    wait = waits_.erase(wait);
  }
  return granted;
}

std::vector<WaitId> LockTable::drop_deadlocked(const std::function<bool(const WaitId&)>& is_there) {
  std::vector<WaitId> dropped;
  if (gained_.empty()) return dropped;
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const bool is_deadlocked =
        gained_.contains(wait->wanted.owner) && is_there(wait->id) && closes_cycle(wait->wanted);
    if (is_deadlocked) dropped.push_back(wait->id);
    wait = is_deadlocked ? waits_.erase(wait) : std::next(wait);
  }
  gained_.clear();
  return dropped;
}

void LockTable::end(ClientId client) {
  for (auto of_file = held_.begin(); of_file != held_.end();) {
    lock_count_ -= of_file->second.size();
    of_file->second.drop(client);
    lock_count_ += of_file->second.size();
    of_file = of_file->second.empty() ? held_.erase(of_file) : std::next(of_file);
  }
  waits_.remove_if([&](const Wait& wait) { return wait.id.client == client; });
}

void LockTable::expire(Time now) {
  waits_.remove_if([&](const Wait& wait) { return wait.until < now; });
}

}  // namespace stdchk::manager
