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

/// The path of a mount directory without links, also when its last part is a link to the directory.
/// Reads only the links on the way: a mount at the directory gets no request.
std::string real_mount_point(const std::string& path);

/// Names the mount that a directory is in, or is the root of: statx(2), without asking the mount.
/// Since Linux 6.8 no later mount gets the same number. Older kernels use numbers again. 0: the
/// kernel does not say, or there is no such directory.
std::uint64_t mount_id(const std::string& directory);
/// The same of an open directory.
std::uint64_t mount_id(int directory);

}  // namespace stdchk
