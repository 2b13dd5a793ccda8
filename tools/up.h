#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/limits.h"
#include "tools/pool_record.h"

namespace stdchk::tools {

/// What `stdchk up` was told. Empty texts: the daemon's own default.
struct UpOptions {
  std::uint32_t benefactors = 0;                    ///< 0: 2; in a job 1 on each node that lends
  std::uint64_t memory_bytes = 512 * limits::kMiB;  ///< of each benefactor
  std::string mount;                                ///< empty: in a job where job_mount() says
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
  std::string topology;      ///< file
  std::uint64_t copy_rate = 0;
  std::uint64_t scrub_rate = limits::kScrubRateDefault;
  std::uint32_t gc_period = 600;  ///< seconds; 0: only when asked for
  std::uint64_t window_bytes = 0;
  std::string close_mode;
  std::string backing;
  std::string disk;
  std::uint64_t log_memory = 0;  ///< of each benefactor; 0: what a full pool needs
  bool pressure = true;
  std::uint64_t pressure_reserve = 0;
  std::string state;
  std::string report;   ///< file
  std::string metrics;  ///< of all daemons; empty: none
  std::string log_level;
  bool allow_other = false;
  bool encrypt = false;
  bool json = false;
  bool export_mount = false;  ///< lines that a shell evaluates
  // In a batch job:
  bool job = false;
  std::uint32_t benefactor_nodes = 0;  ///< the last ones of the job; 0: all
  std::string exchange;                ///< a folder that all nodes share
  std::vector<std::string> arguments;  ///< as given, for the parts on the nodes
  // Of one node's part, as `up --job` starts it:
  bool node = false;
  bool detach = false;
  std::string job_id;
  std::string nodes;
  std::string lenders;
  std::string undrained;  ///< file; empty: none is kept
  std::string config_file;
  std::string invoked_as;
};

/// Starts a pool and returns when its mount is usable; after a failure nothing of it runs any more.
Outcome<PoolRecord> start_pool(UpOptions options);
/// The words of a text with spaces between them.
std::vector<std::string> split_words(const std::string& text);
/// A folder of this user alone: others must not be able to read a secret or plant files.
Outcome<void> make_private(const std::string& directory);
/// How long it may take until that much memory was touched and all answers.
Duration ready_longest(std::uint64_t memory_bytes);
/// How to use the pool, for people.
std::string describe_pool(const PoolRecord& pool, const UpOptions& options);

}  // namespace stdchk::tools
