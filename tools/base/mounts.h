#pragma once

#include <cstdint>
#include <string>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// The present state of a directory.
enum class MountState {
  kNone,   ///< not a mount point
  kAlive,  ///< a mount that answers
  kDead,   ///< a FUSE mount whose process has ended
};

struct MountInfo {
  MountState state = MountState::kNone;
  std::string type;  ///< such as "fuse.stdchk", "ext4"
  std::string source;
  std::uint64_t id = 0;  ///< see mount_id(); 0: unknown
};

/// Reads /proc/self/mountinfo (proc(5)); asks the mount itself only whether it is dead. A mount
/// that waits for its manager delays the answer, as any call below it.
MountInfo mount_at(const std::string& directory);
/// Does not ask the mount, and so does not wait: a dead mount counts as alive.
MountInfo mount_unasked(const std::string& directory);

/// Unmounts the FUSE mount `id` of mount_id(), and no other mount there. Without `lazy`, fails
/// while a program uses the mount.
Outcome<void> unmount(const std::string& directory, std::uint64_t id, bool lazy);

/// The programs that keep `directory` busy, such as "bash (pid 7), dd (pid 9)", as far as this user
/// can see them.
std::string users_of(const std::string& directory);

}  // namespace stdchk::tools
