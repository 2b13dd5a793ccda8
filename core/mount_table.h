#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stdchk {

/// A line of /proc/self/mountinfo (proc(5)).
struct MountEntry {
  std::uint32_t minor = 0;  ///< of the superblock's device; of FUSE, the number of its connection
  std::string type;         ///< "fuse.stdchk", "ext4"
  std::string source;
};

/// What `table` says is mounted at a directory, the last when there are several; nothing: nothing
/// is. The mount itself is not asked, so one that hangs keeps nobody waiting. Threads: any.
std::optional<MountEntry> find_mount(const std::string& directory,
                                     const std::string& table = "/proc/self/mountinfo");

}  // namespace stdchk
