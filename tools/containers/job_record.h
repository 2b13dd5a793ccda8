#pragma once

#include <string>
#include <vector>

#include "tools/base/problem.h"
#include "tools/containers/commands.h"

namespace stdchk::tools {

/// The folder of a job on this host: its record, logs of its nodes, and the coordinator's socket.
std::string job_folder(const std::string& job);
std::string control_path(const std::string& job);
/// Names of this user's jobs with a folder on this host.
std::vector<std::string> known_jobs();

/// Writes how the job was started, for a restart. `folder` is that of its sets.
Outcome<void> save_job(const RunOptions& options, const std::string& folder);
/// Reads it; `options.from` becomes the folder of the sets.
Outcome<RunOptions> load_job(const std::string& job);

/// Removes the job's folder on this host. Its sets in the pool stay.
void forget_job(const std::string& job);
/// Removes the folders of jobs that have had no coordinator for 30 days.
void forget_old_jobs();

}  // namespace stdchk::tools
