#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/files/file_locks.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::manager {

/// A WaitId names a request that waits for a lock: the client, and the client's ticket.
struct WaitId {
  ClientId client;
  std::uint64_t ticket = 0;
  auto operator<=>(const WaitId&) const = default;
};

/// A LockTable has the locks of all clients on files, and the requests that wait for locks. It
/// follows flock(2) and fcntl(2). An owner never excludes itself. A new lock replaces the owner's
/// lock on the same bytes. flock() gives up the old lock before it waits.
///
/// Later requests stay behind a waiting request for the time kPassAfter, because a series of
/// readers would otherwise keep a writer out for ever. After that time a later request passes: some
/// programs hold a shared lock until another process has the lock, too. Two kinds of requests pass
/// at once: requests that must not wait, and requests of a process that has a lock on the file.
///
/// Threads: one.
/// Errors: kSystem with ENOLCK when kLocksMax is reached. A call that fails changes nothing.
/// Limits: kLocksMax locks and waits. A call takes time in proportion to the locks of the file. A
///   wait for a record lock also takes time in proportion to the waits in its chain.
/// Not: durable. Clients claim their locks from the next manager.
class LockTable {
 public:
  static constexpr std::size_t kLocksMax = std::size_t{1} << 20;
  static constexpr Duration kPassAfter = std::chrono::seconds(2);

  /// Takes the lock, unless another owner's lock excludes it (kRefused).
  Result<msg::LockOutcome> take(const FileLock& wanted);
  /// Takes the lock, or keeps the request in the queue until `until` (kWaits). To call it again
  /// with the same id renews the time. kDeadlock: the owner would wait for itself, by record locks.
  Result<msg::LockOutcome> wait(const FileLock& wanted, const WaitId& id, Time now, Time until);
  void cancel(const WaitId& id) { erase_wait(id); }
  /// Releases the owner's locks in the range.
  Status release(const FileLock& range);
  /// Grants waiting requests that nothing excludes any more, the oldest first. Skips requests of
  /// which `is_there(id)` is false. Returns the granted requests, which wait no more.
  std::vector<WaitId> grant(const std::function<bool(const WaitId&)>& is_there, Time now);
  /// Drops waiting requests whose owner has come to wait for itself, because it got another lock
  /// meanwhile: a process may wait in several threads. Skips requests as grant() does; wait() finds
  /// those when they are repeated. Returns the dropped requests.
  std::vector<WaitId> drop_deadlocked(const std::function<bool(const WaitId&)>& is_there);
  /// Drops the locks and waits of a client.
  void end(ClientId client);
  /// Drops requests that were not renewed in time.
  void expire(Time now);

  /// Returns a lock that excludes `wanted`.
  std::optional<FileLock> excluding(const FileLock& wanted) const;
  std::size_t lock_count() const { return lock_count_; }
  std::size_t wait_count() const { return waits_.size(); }

 private:
  using Key = std::pair<FileId, msg::LockSpace>;
  struct Wait {
    WaitId id;
    FileLock wanted;
    Time since{};
    Time until{};
  };
  using Waits = std::list<Wait>;
  bool has_room(std::size_t added) const;
  void put(const FileLock& lock);
  void cut(const FileLock& range);
  void erase_wait(const WaitId& id);
  bool closes_cycle(const FileLock& wanted) const;
  void give_up_converted(const FileLock& wanted);
  bool has_lock(const FileLock& wanted) const;
  bool is_queued_before(const FileLock& wanted, Waits::const_iterator end) const;

  std::map<Key, FileLocks> held_;
  Waits waits_;  ///< the oldest first
  /// Owners that got a record lock while requests waited, since drop_deadlocked().
  std::set<LockOwner> gained_;
  std::size_t lock_count_ = 0;
};

}  // namespace stdchk::manager
