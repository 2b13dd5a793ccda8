#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "tools/base/pool_record.h"

namespace stdchk::tools {

/// The options of `stdchk up`. Empty texts: the daemon's own default.
struct UpOptions {
  std::uint32_t benefactors = 0;                    ///< 0: 2; in a job 1 on each node that lends
  std::uint64_t memory_bytes = 512 * limits::kMiB;  ///< of each benefactor
  std::string mount;                                ///< empty: in a job, job_mount()
  std::string drain;
  std::uint64_t drain_rate = 0;
  std::uint64_t drain_total = 0;
  bool drain_yields = true;
  bool standby = false;
  std::string hosts_file;
  std::string remote_shell = "ssh";
  bool mount_on_hosts = false;
  bool no_mount = false;  ///< the mount's path is only the pool's name
  std::string listen;
  std::string transport = "auto";
  bool trusted_network = false;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t stripe_width = 0;
  std::string naming;
  std::string policy;
  std::string chunking;
  std::uint32_t copies = 0;  ///< the number of a Redundancy
  std::string topology;      ///< path of a file
  std::uint64_t copy_rate = 0;
  std::uint64_t scrub_rate = limits::kScrubRateDefault;
  std::uint32_t gc_period = 600;  ///< seconds; 0: only on request
  std::uint64_t window_bytes = 0;
  std::string close_mode;
  std::string backing;
  std::string disk;
  std::uint64_t log_memory = 0;  ///< of each benefactor; 0: what a full pool needs
  bool pressure = true;
  std::uint64_t pressure_reserve = 0;
  std::string state;
  std::string report;     ///< path of a file
  std::string safe_file;  ///< path of the file that names the newest safe set; empty: none
  std::string metrics;    ///< address for all daemons; empty: none
  std::string log_level;
  bool allow_other = false;
  bool encrypt = false;
  bool json = false;
  bool export_mount = false;  ///< prints lines for a shell to evaluate
  // In a batch job:
  bool job = false;
  std::uint32_t benefactor_nodes = 0;  ///< the job's last nodes lend memory; 0: all nodes
  std::string exchange;                ///< a folder that all nodes share
  std::vector<std::string> arguments;  ///< as given, for the parts on the nodes
  // For one node's part, as `up --job` starts it:
  bool node = false;
  bool detach = false;
  std::string job_id;
  std::string nodes;
  std::string lenders;
  std::string undrained;  ///< path of the file of undrained sets; empty: none
  std::string config_file;
  std::string invoked_as;
};

/// Starts a pool and returns when its mount works; after a failure no process of it remains.
Outcome<PoolRecord> start_pool(UpOptions options);
/// The words of a text, separated by spaces.
std::vector<std::string> split_words(const std::string& text);
/// Makes a folder that only this user can access, so that others cannot read secrets or plant
/// files.
Outcome<void> make_private(const std::string& directory);
/// The time limit until this much memory is touched and all daemons answer.
Duration ready_longest(std::uint64_t memory_bytes);
/// Tells people how to use the pool.
std::string describe_pool(const PoolRecord& pool, const UpOptions& options);

}  // namespace stdchk::tools
