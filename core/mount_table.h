#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stdchk {

/// A line of /proc/self/mountinfo (proc(5)).
struct MountEntry {
  std::uint32_t minor = 0;  ///< of the superblock's device; for FUSE the number of the connection
  std::string type;         ///< "fuse.stdchk", "ext4"
  std::string source;
};

/// Returns what `table` says is mounted at a directory, the last mount if there are several, or
/// nothing. Does not access the mount, so a mount that hangs does not block. Threads: any.
std::optional<MountEntry> find_mount(const std::string& directory,
                                     const std::string& table = "/proc/self/mountinfo");

}  // namespace stdchk
