#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/base/pool_record.h"
#include "tools/base/problem.h"
#include "tools/base/process.h"
#include "tools/pool/batch_job.h"

namespace stdchk::tools {

std::string joined_with_commas(const std::vector<std::string>& words);
/// The program's absolute path, equal on all nodes.
Outcome<std::string> own_program(const std::string& invoked_as);
/// The launcher's command that runs `words` on the job's node number `index`.
std::vector<std::string> node_command(const BatchJob& job, std::size_t index,
                                      const std::vector<std::string>& words);
/// Makes a command for each group of nodes that the launcher starts together.
std::vector<std::vector<std::string>> launch_commands(const BatchJob& job,
                                                      const std::vector<std::string>& words);
/// Returns the reason why a command on a node has failed, or an empty text after a success.
/// The command pbsdsh of OpenPBS exits with 0 even if its task fails, and prints that the task
/// failed. The task's own output goes to the job's output.
std::string command_failure(const BatchJob& job, const Outcome<CommandOutput>& done);

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

}  // namespace stdchk::tools
