#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/files/drain_folder.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// Changes the entries of the manifest of one drain folder, by manifest_key(): reads them, calls `change`, and
/// replaces the file durably and atomically. Removes a manifest without entries.
///
/// Processes on several hosts may change a manifest at once. A lock on the file serialises them;
/// each waits until `until` at most. `change` may be called again, with entries that another
/// process has written. Without locks, or after the wait, another process's entry may be lost until
/// it is written again.
///
/// The manifest belongs to the folder's owner, if this process can change owners. Users who cannot
/// list the folder cannot read it. A link or a FIFO in its place is replaced. For a folder in its
/// place, prints a line and writes nothing.
///
/// Removes files that killed processes left beside the manifest, after ten minutes.
///
/// `path` is the folder's, for messages.
Outcome<void> change_manifest(const DrainFolder& folder, const std::string& path,
                              const std::function<void(nlohmann::json& entries)>& change,
                              std::chrono::steady_clock::time_point until);
/// The longest wait for other processes that change manifests.
inline constexpr auto kManifestPatience = std::chrono::seconds(60);

/// Removes deleted files from the manifest of one folder.
Outcome<void> forget_in_manifest(const DrainFolder& folder, const std::string& path,
                                 const std::vector<std::string>& names);

}  // namespace stdchk::tools
