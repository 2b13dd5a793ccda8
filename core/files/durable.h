#pragma once

#include <sys/types.h>

#include <string>

#include "core/base/result.h"

/// Makes files and directories survive a power failure. An fsync of a file does not cover its name
/// (fsync(2)). The name needs an fsync of the directory, and the directory's own name an fsync of
/// its parent.
namespace stdchk {

/// Syncs the bytes of a file, or the names in a directory. A file system that cannot
/// sync directories says EINVAL. This answer counts as success, because nothing
/// better is possible there.
Status sync_path(const std::string& path);

/// As mkdir(2), and makes the directory's name durable. If the directory exists, syncs its parent
/// anyway and ignores errors: its creator may have crashed before it did.
Status make_durable_directory(const std::string& path, mode_t mode);

/// As mkdir -p: also makes missing parent directories.
Status make_durable_directories(const std::string& path);

}  // namespace stdchk
