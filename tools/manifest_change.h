#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/drain_folder.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// Has the entries of the manifest of one folder of the drain directory changed: reads them, calls
/// `change` and replaces the file, which is durable, and whole from its first moment. One without
/// entries goes.
///
/// Several may do so at once, on any hosts: a lock on the file has one wait for the other, until
/// `until` at most. `change` may be called again, with the entries that another has left. Where the
/// file system has no locks, or nobody waits any more, an entry of another one may be lost until
/// that is written again.
///
/// The manifest belongs to the folder's owner, as far as this process may give it, and whoever may
/// not list the folder may not read it. A link or a FIFO in its place is replaced; for a folder in
/// its place a line is printed, and nothing is written.
///
/// What somebody who was killed has left beside the manifest is removed when it is ten minutes old.
///
/// `path` is the folder's, for messages.
Outcome<void> change_manifest(const DrainFolder& folder, const std::string& path,
                              const std::function<void(nlohmann::json& entries)>& change,
                              std::chrono::steady_clock::time_point until);
/// So long somebody waits for others who change manifests.
inline constexpr auto kManifestPatience = std::chrono::seconds(60);

/// Takes files that were removed out of the manifest of one folder.
Outcome<void> forget_in_manifest(const DrainFolder& folder, const std::string& path,
                                 const std::vector<std::string>& names);

}  // namespace stdchk::tools
