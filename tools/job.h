#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/down.h"
#include "tools/up.h"

namespace stdchk::tools {

/// A BatchJob is the batch system's job that this process runs in, or some of its nodes, or nodes
/// without any batch system.
struct BatchJob {
  enum class System { kSlurm, kPbs, kNone };
  System system = System::kSlurm;
  std::string id;
  std::vector<std::string> nodes;   ///< each once; the first is the one that the script runs on
  std::vector<std::string> places;  ///< PBS: the number of each node's first line in PBS_NODEFILE
  /// Without a launcher: what reaches a node, as of `up --hosts`; otherwise empty.
  std::vector<std::string> remote_shell;
};

/// From the environment that Slurm or PBS gives the batch script. `remote_shell` is for where there
/// is no launcher.
Outcome<BatchJob> current_job(const std::vector<std::string>& remote_shell);
/// The name that the batch system has for this node.
std::string node_name();
/// Where the part of a job's pool on this node has its state. Not on a shared file system.
std::string job_state_directory(const std::string& job_id);

/// Where a job's pool is mounted when --mount does not say, the same on all nodes.
std::string job_mount(const std::string& job_id);

/// Starts the pool's part on each node of the job through the batch system's own launcher, and
/// returns when all mounts are usable. After a failure nothing of it runs any more. How many nodes
/// lend is in `benefactor_nodes` afterwards.
Outcome<PoolRecord> start_in_job(UpOptions& options);

/// What the shell of a job script evaluates to have the pool taken down when the script ends,
/// drained first, and as that of a job that has ended well when the script's exit status is 0;
/// after SIGTERM the drain gets kTermDrainSeconds. A script's own trap for EXIT stays.
inline constexpr int kTermDrainSeconds = 240;
std::string end_traps(const PoolRecord& pool, const std::string& invoked_as);

/// The part of this node: starts it, tells the others through the exchange directory, and stays
/// until it is asked to end (SIGTERM) or `stdchk down` has ended it. Returns the exit status.
int run_node_part(UpOptions options);

/// How a command on one node has ended.
struct NodeEnd {
  bool good = false;
  std::string failure;  ///< empty when it was ended because of another node, or of a signal
  double seconds = 0;   ///< since all have begun
};
/// Runs `stdchk WORDS...` on all nodes at once, until the last has ended. Soon after one has
/// failed, and when asked_to_end(), the others are ended. `words` gets the node's number, begins
/// with the subcommand, and is called by several threads.
///
/// A node that is reached by a remote shell gets `pool` with the command, its secret and key by
/// standard input, in a folder that goes with the command. A launcher's node knows the pool itself.
std::vector<NodeEnd> run_on_nodes(const BatchJob& job, const std::string& invoked_as,
                                  const PoolRecord& pool,
                                  const std::function<std::vector<std::string>(std::size_t)>& words,
                                  Duration longest);
/// Ends the pool's part on all nodes of the job. A node that cannot be reached is a note: its batch
/// system has ended what was there.
DownReport stop_in_job(const BatchJob& job, const std::string& invoked_as);
/// Ends what the job has left on this node; nothing is no error.
DownReport stop_node_part(const std::string& job_id);

}  // namespace stdchk::tools
