#pragma once

#include <string>
#include <utility>

#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// An UpLock lets only one `stdchk up` of this user work on a mount at a time, even if they have
/// different runtime folders. Its file in user_folder() names the process that holds it.
///
/// Not: the lock that keeps two mounts apart; the mount itself has a MountLock for that.
class UpLock {
 public:
  /// A Problem when another `stdchk up` has it. Where another user has taken the name of
  /// user_folder() there is no such lock, and the second `up` fails later.
  static Outcome<UpLock> take(const PoolRecord& record);
  ~UpLock();
  UpLock(UpLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UpLock& operator=(UpLock&&) = delete;

 private:
  explicit UpLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace stdchk::tools
