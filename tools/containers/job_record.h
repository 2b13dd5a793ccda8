#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tools/base/problem.h"
#include "tools/containers/commands.h"

namespace stdchk::tools {

/// The folder of a job on this host: its record, logs of its nodes, and the coordinator's socket.
std::string job_folder(const std::string& job);
std::string control_path(const std::string& job);
/// Asks the job's coordinator on this host. Errors: the job's folder is not this user's own, so its
/// socket may be another user's; no answer.
Outcome<std::string> ask_job(const std::string& job, const std::string& request, Duration deadline);
/// Names of this user's jobs with a folder on this host. The list is empty when another user can
/// change the folder of all jobs.
std::vector<std::string> known_jobs();

/// Writes how the job was started, for a restart. `folder` is that of its sets.
Outcome<void> save_job(const RunOptions& options, const std::string& folder);
/// Reads it; `options.from` becomes the folder of the sets.
Outcome<RunOptions> load_job(const std::string& job);

/// Removes the job's folder on this host, if it is this user's own. Its sets in the pool stay.
void forget_job(const std::string& job);
/// Removes the folders of jobs that have had no coordinator for 30 days.
void forget_old_jobs();

}  // namespace stdchk::tools
