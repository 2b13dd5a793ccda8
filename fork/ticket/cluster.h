#pragma once

#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "fork/ticket/host_table.h"

namespace stdchk::fork {

/// A Cluster is the hosts that clones may go to, and how programs are started there.
struct Cluster {
  std::vector<Host> hosts;  ///< the first is this host, with the name ""
  std::string shell;        ///< words; a host and a program follow them
};

/// Finds the hosts that `source` names: "slurm" or "pbs" are the hosts of the job that this process
/// belongs to; "" is this host alone; otherwise it is the path of a host list. A batch system's
/// number of processors for this host replaces `own.slots` when that is 0. A host whose memory is
/// not given has `clone_bytes` for each slot. `shell` replaces the batch system's way to start a
/// program; empty: it does not. Errors: a sentence.
tl::expected<Cluster, std::string> cluster_of(const std::string& source, Host own,
                                              std::uint64_t clone_bytes, const std::string& shell);

/// Reads the content of a PBS node file: one line for each processor. Errors: a sentence.
tl::expected<std::vector<Host>, std::string> hosts_of_pbs(std::string_view text, const Host& like);

/// Takes this host, whose name may be given with its domain or without, out of `hosts`, and puts it
/// first.
std::vector<Host> with_own_first(std::vector<Host> hosts, const std::string& own_name, Host own);

}  // namespace stdchk::fork
