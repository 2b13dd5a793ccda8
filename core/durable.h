#pragma once

#include <sys/types.h>

#include <string>

#include "core/result.h"

/// What is to be there when the machine has lost its power. A file's fsync says nothing of its name
/// (fsync(2)): that is the directory's, and the directory's own name that of the one above.
namespace stdchk {

/// The bytes of a file, or the names in a directory. A file system that cannot sync directories
/// says EINVAL, which is no error: there is nothing better to be had there.
Status sync_path(const std::string& path);

/// As mkdir(2), and its name is durable; of a directory that is there already as well as can be:
/// who has made it may have died before that.
Status make_durable_directory(const std::string& path, mode_t mode);

/// And those above it that are not there, as mkdir -p makes them.
Status make_durable_directories(const std::string& path);

}  // namespace stdchk
