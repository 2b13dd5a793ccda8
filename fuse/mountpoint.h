#pragma once

#include <string>
#include <string_view>

#include "core/base/problem.h"

namespace stdchk::mount {

/// Makes `path` ready to mount on, and unmounts an earlier mount there whose process is gone.
Outcome<void> prepare_mountpoint(const std::string& path);

/// Returns true for 1 to 64 letters, digits and characters of `._:/-`. Other characters, such as
/// commas and spaces, mean something to libfuse or the mount table.
bool is_source_name(std::string_view name);

/// Returns true when `path` is still a mount, but its process is gone or the kernel has cut it off.
bool is_dead(const std::string& path);

/// Unmounts a dead mount at `path`. Returns true when `path` is no dead mount any more.
bool unmount_dead(const std::string& path);

/// Ends the kernel's connection to the process that serves `path`. All calls that wait for it fail
/// with ECONNABORTED. The mount itself may go too. A user other than root needs
/// /sys/fs/fuse/connections (fusectl); without it, the log says what to do.
void abort_mount(const std::string& path);

/// Checks what FUSE needs: /dev/fuse, and fusermount3 for users other than root.
Outcome<void> check_fuse_available();

/// Enlarges the read-ahead of the mount at `path`, if this process may (root). The kernel's default
/// of 128 KiB is an eighth of what one request can carry. Failure costs only speed.
void raise_read_ahead(const std::string& path, unsigned kilobytes);

}  // namespace stdchk::mount
