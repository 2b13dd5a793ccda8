#pragma once

#include <optional>
#include <string>

namespace stdchk::mount {

/// Makes `path` ready to mount on: an earlier mount there whose daemon is gone is unmounted.
/// Answers with a sentence that says what is wrong and what to do, or nothing when all is well.
std::optional<std::string> prepare_mountpoint(const std::string& path);

/// Whoever served `path` is gone, or was cut off by the kernel, and the mount has stayed.
bool is_dead(const std::string& path);

/// Unmounts what a process that is gone has left at `path`; true: nothing dead is there any more.
bool unmount_dead(const std::string& path);

/// Ends the kernel's connection to whoever serves `path`: all calls that wait for it end with
/// ECONNABORTED. The mount itself may go with it. A user who is not root needs
/// /sys/fs/fuse/connections (fusectl); where this process may not, the log says what to do.
void abort_mount(const std::string& path);

/// What is wrong with what FUSE needs: /dev/fuse, and fusermount3 for users.
std::optional<std::string> check_fuse_available();

/// Gives the mount at `path` a larger read-ahead, where this process may (root): the kernel's
/// default of 128 KiB is an eighth of what one request can carry. Not promised; nothing depends on
/// it but speed.
void raise_read_ahead(const std::string& path, unsigned kilobytes);

}  // namespace stdchk::mount
