#pragma once

#include <string>
#include <vector>

#include "tools/base/problem.h"

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
/// Whether the text can be a job's number: a valid path component and argument.
bool is_job_id(const std::string& id);
/// The batch system's name for this node.
std::string node_name();
/// Whether a list of nodes, separated by commas, has this node, with or without its domain.
bool is_listed(const std::string& nodes, const std::string& name);
/// The state directory for this node's part of a job's pool. Not on a shared file system.
std::string job_state_directory(const std::string& job_id);

/// The default mount directory of a job's pool, equal on all nodes.
std::string job_mount(const std::string& job_id);

}  // namespace stdchk::tools
