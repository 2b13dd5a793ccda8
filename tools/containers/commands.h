#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/description/description.h"
#include "tools/containers/pool_identity.h"

/// The subcommands about jobs in containers. Each prints its result and returns the exit status
/// (base/exit_status.h).
namespace stdchk::tools {

/// The hosts on which a job in containers runs.
struct JobHosts {
  std::uint32_t nodes = 1;  ///< daemons on this host
  std::string file;         ///< the job's hosts; empty: only this host
  std::string remote_shell = "ssh";
  bool in_job = false;  ///< on the nodes of the Slurm or PBS job that this process is in
  std::uint32_t spares = 0;
};

/// How often a job in containers is saved.
struct PaceOptions {
  std::string every;    ///< time between checkpoints, or "never"; empty: as --advise
  bool advise = false;  ///< as often as the cost model of `stdchk advise` says
  std::string mtbf;     ///< of one node, for the cost model; empty: five years
};

struct RunOptions {
  std::string pool;
  std::string up;           ///< options of `stdchk up` for a pool of the job's own; empty: none
  std::string name;         ///< of the job; empty: a new one
  std::uint32_t ranks = 1;  ///< containers beside the launcher's
  JobHosts hosts;
  std::uint32_t retries = 3;
  std::uint32_t lease_s = 10;
  PaceOptions pace;
  std::string policy;  ///< settings of the folder of the sets, as `stdchk policy set` takes them
  bool lazy = false;   ///< each restart loads memory while the job runs
  std::string root = "/";  ///< base file system, or an OCI bundle
  std::string criu = "criu";
  container::BoxLimits limits;  ///< of each container
  std::vector<std::string> program;
  // Only for a restart:
  PoolIdentity own_pool;  ///< the pool that an earlier run brought up by `up`
  std::string from;       ///< folder of the job's sets
  std::string set;        ///< "T5", or A.*.T5; empty: the newest complete set
};
/// Returns the exit status of the program.
int run_job(RunOptions& options, const std::string& invoked_as);

struct JobsOptions {
  bool json = false;
  std::string forget;  ///< a job that does not run: its record is removed; its sets stay
};
int run_jobs(const JobsOptions& options);

struct CheckpointOptions {
  std::string job;
  std::uint32_t timeout_s = 600;
};
int run_checkpoint(const CheckpointOptions& options);

struct EvacuateOptions {
  std::string node;
  std::string job;  ///< empty: every job of this user that runs here
  std::uint32_t timeout_s = 600;
};
int run_evacuate(const EvacuateOptions& options);

/// Whether `stdchk restart` means a job in containers: `name` is one that was started here, or a
/// folder of sets of one. Fills `options` as that job was started.
bool find_job(const std::string& name, RunOptions& options);

}  // namespace stdchk::tools
