#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk {

/// A LockOwner is a process or an open file behind a client.
struct LockOwner {
  ClientId client;
  std::uint64_t number = 0;  ///< the client's own
  auto operator<=>(const LockOwner&) const = default;
};

/// A FileLock is a lock that an owner has or wants on a range of a file.
struct FileLock {
  FileId file;
  msg::LockSpace space = msg::LockSpace::kFlock;
  msg::LockKind kind = msg::LockKind::kNone;
  LockOwner owner;
  std::uint32_t pid = 0;
  std::uint64_t first = 0;  ///< the first byte
  std::uint64_t last = 0;   ///< the last byte
  bool operator==(const FileLock&) const = default;
};

/// Returns true when the lock `held` of another owner excludes `wanted`. Requires that both locks
/// have the same file and space.
bool excludes(const FileLock& held, const FileLock& wanted);

/// A FileLocks has the locks of all owners on one file, of one space.
///
/// Threads: one at a time. Limits: a call takes time in proportion to the locks.
class FileLocks {
 public:
  /// Adds a lock, which takes the place of the owner's locks on these bytes. Joins it with the
  /// owner's locks of the same kind beside it.
  void put(const FileLock& lock);
  /// Takes the range away from the owner's locks. A lock may fall into two.
  void cut(const FileLock& range);
  /// Drops all locks of a client.
  void drop(ClientId client);
  const std::vector<FileLock>& all() const { return locks_; }
  std::size_t size() const { return locks_.size(); }
  bool empty() const { return locks_.empty(); }

 private:
  std::vector<FileLock> locks_;
};

}  // namespace stdchk
