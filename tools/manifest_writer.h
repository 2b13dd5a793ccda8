#pragma once

#include <string>

#include "client/filesystem.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// Writes the manifests of the folders at and below `path`, for the files there that are drained.
/// What an earlier manifest says of files whose checksums this pool does not know is kept.
/// Files whose names are not UTF-8 are left out: JSON has no words for them.
Outcome<void> write_manifests(client::Filesystem& filesystem, const std::string& drain_directory,
                              const std::string& path, const Attributes& attributes);

}  // namespace stdchk::tools
