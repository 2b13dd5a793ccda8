#pragma once

#include <string>
#include <vector>

#include "core/base/problem.h"
#include "fork/ticket/host_table.h"

namespace stdchk::fork {

/// A Cluster is the hosts that clones may go to, and how programs are started there.
struct Cluster {
  std::vector<Host> hosts;  ///< this host comes first, its name is ""
  std::string shell;        ///< words; a host and a program follow them
};

/// Finds the hosts that `source` names. "slurm" and "pbs" name the hosts of this process's job, ""
/// names this host alone. Every other text is the path of a host list.
///
/// A batch system's number of processors for this host replaces `own.slots` when that is 0. A host
/// whose memory is not given has `clone_bytes` for each slot. `shell` replaces the batch system's
/// way to start a program, if it is not empty. Errors: a sentence.
Outcome<Cluster> cluster_of(const std::string& source, Host own, std::uint64_t clone_bytes,
                            const std::string& shell);

/// Reads the content of a PBS node file: one line for each processor. Errors: a sentence.
Outcome<std::vector<Host>> hosts_of_pbs(std::string_view text, const Host& like);

/// Takes this host, whose name may be given with its domain or without, out of `hosts`, and puts it
/// first.
std::vector<Host> with_own_first(std::vector<Host> hosts, const std::string& own_name, Host own);

}  // namespace stdchk::fork
