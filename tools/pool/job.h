#pragma once

#include <string>

#include "tools/pool/batch_job.h"
#include "tools/pool/down.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// Starts the pool's part on each node of the job through the batch system's launcher. Returns when
/// all mounts work; after a failure no part runs any more. Sets `benefactor_nodes` to the number of
/// nodes that lend memory.
Outcome<PoolRecord> start_in_job(UpOptions& options);

/// Shell code for a job script that takes the pool down when the script ends, after a drain. With
/// exit status 0 it ends the pool as that of a successful job. After SIGTERM the drain gets
/// kTermDrainSeconds. Keeps the script's own trap for EXIT.
inline constexpr int kTermDrainSeconds = 240;
std::string trap_commands(const PoolRecord& pool, const std::string& invoked_as);

/// Runs this node's part: starts it, announces it through the exchange directory, and stays until
/// SIGTERM or until `stdchk down` has ended it. Returns the exit status.
int run_node_part(UpOptions options);

/// Ends the pool's part on all nodes of the job. An unreachable node is only a note: its batch
/// system has ended the processes there.
DownReport stop_in_job(const BatchJob& job, const std::string& invoked_as);
/// Ends the remains of the job on this node; finding none is no error.
DownReport stop_node_part(const std::string& job_id);

}  // namespace stdchk::tools
