#pragma once

#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/problem.h"
#include "core/files/own_folder.h"

namespace stdchk {

/// A MountLock keeps a mount directory for this process and the children that inherit the lock. The
/// lock is a flock(2) on the directory itself, taken before the mount. A second process meets the
/// lock even with another runtime folder or state directory.
///
/// Errors: kBusy when another process has the lock, kRefused for other reasons, each with a
/// sentence that says what to do. A file system without flock gives a MountLock that keeps nobody
/// off. Not: a guard against other users. They cannot mount there, because the directory must be
/// this user's own (OwnFolder).
class MountLock {
 public:
  /// `mount` is absolute, without links, and an empty directory of this user. Waits up to
  /// `patience` for the lock: a starting `stdchk up` holds it for some milliseconds to test the
  /// directory.
  static Outcome<MountLock> take(const std::string& mount, Duration patience);

 private:
  explicit MountLock(OwnFolder folder) : folder_(std::move(folder)) {}

  OwnFolder folder_;
};

/// The rules for a mount directory.
inline constexpr FolderRules kMountRules{
    .what = "the mount point", .is_private = false, .safe_above = true};

}  // namespace stdchk
