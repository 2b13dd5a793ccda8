#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/pool/down.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// A BatchJob is the batch job that this process runs in, or a subset of its nodes, or nodes
/// without any batch system.
struct BatchJob {
  enum class System { kSlurm, kPbs, kNone };
  System system = System::kSlurm;
  std::string id;
  std::vector<std::string> nodes;   ///< without repetition; the script runs on the first node
  std::vector<std::string> places;  ///< PBS: the number of each node's first line in PBS_NODEFILE
  /// Without a launcher: the remote shell, as in `up --hosts`; otherwise empty.
  std::vector<std::string> remote_shell;
};

/// Returns the words of a command, such as a remote shell's, separated by spaces.
std::vector<std::string> split_words(const std::string& text);
/// Reads the job from the environment that Slurm or PBS gives the batch script. Uses `remote_shell`
/// where there is no launcher.
Outcome<BatchJob> current_job(const std::vector<std::string>& remote_shell);
/// The batch system's name for this node.
std::string node_name();
/// Whether a list of nodes, separated by commas, has this node, with or without its domain.
bool is_listed(const std::string& nodes, const std::string& name);
/// The state directory for this node's part of a job's pool. Not on a shared file system.
std::string job_state_directory(const std::string& job_id);

/// The default mount directory of a job's pool, equal on all nodes.
std::string job_mount(const std::string& job_id);

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

/// How a command on one node has ended.
struct NodeEnd {
  bool good = false;
  std::string failure;  ///< empty when a signal or another node's failure ended it
  double seconds = 0;   ///< seconds since all have begun
};
/// Runs `stdchk WORDS...` on all nodes at once; returns after the last has ended. After a node's
/// failure, and when asked_to_end(), ends the others. `words` gets the node's number and returns
/// the words from the subcommand on. Several threads call it.
///
/// A node behind a remote shell gets `pool`, its secret and its key by standard input, in a folder
/// that is removed with the command. On a launcher's node the command finds the pool itself.
std::vector<NodeEnd> run_on_nodes(const BatchJob& job, const std::string& invoked_as,
                                  const PoolRecord& pool,
                                  const std::function<std::vector<std::string>(std::size_t)>& words,
                                  Duration longest);
/// Ends the pool's part on all nodes of the job. An unreachable node is only a note: its batch
/// system has ended the processes there.
DownReport stop_in_job(const BatchJob& job, const std::string& invoked_as);
/// Ends the remains of the job on this node; finding none is no error.
DownReport stop_node_part(const std::string& job_id);

}  // namespace stdchk::tools
