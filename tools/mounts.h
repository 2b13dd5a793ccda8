#pragma once

#include <cstdint>
#include <string>

#include "tools/problem.h"

namespace stdchk::tools {

/// What is at a directory now.
enum class MountState {
  kNone,   ///< nothing is mounted there
  kAlive,  ///< a mount that answers
  kDead,   ///< a FUSE mount whose process is gone
};

struct MountInfo {
  MountState state = MountState::kNone;
  std::string type;  ///< "fuse.stdchk", "ext4"
  std::string source;
  std::uint64_t id = 0;  ///< see mount_id(); 0: not known
};

/// From /proc/self/mountinfo (proc(5)); asks the mount itself only whether it is dead. One that
/// waits for its manager answers as late as any call below it.
MountInfo mount_at(const std::string& directory);
/// The same at once: one that is dead counts as alive.
MountInfo mount_unasked(const std::string& directory);

/// Unmounts the FUSE mount `id` of mount_id(), and no other one that may be there by now. Without
/// `lazy` it fails when a program still uses it.
Outcome<void> unmount(const std::string& directory, std::uint64_t id, bool lazy);

/// The programs that keep `directory` busy, "bash (pid 7), dd (pid 9)", as far as they can be seen.
std::string users_of(const std::string& directory);

}  // namespace stdchk::tools
