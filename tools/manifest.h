#pragma once

#include <string>

#include "client/filesystem.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// The file in each folder of the drain directory that says what the drained files there must hold.
inline constexpr const char* kManifestName = ".stdchk-manifest";

/// Writes the manifests of the folders at and below `path`, for the files there that are drained.
/// What an earlier manifest says of files whose checksums this pool does not know is kept.
Outcome<void> write_manifests(client::Filesystem& filesystem, const std::string& drain_directory,
                              const std::string& path, const Attributes& attributes);

}  // namespace stdchk::tools
