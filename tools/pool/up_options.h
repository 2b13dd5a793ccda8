#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/limits.h"

/// The options of `stdchk up`, in groups. An empty text, and 0 where nothing else is said, mean the
/// default of the daemon.
namespace stdchk::tools {

/// The memory or disk space that each benefactor lends.
struct LentSpace {
  std::uint32_t benefactors = 0;  ///< on each host; 0: 2, in a job 1 on each node that lends
  std::uint64_t memory_bytes = 512 * limits::kMiB;
  std::string backing;
  std::string disk;              ///< directory
  std::uint64_t log_memory = 0;  ///< bytes; 0: as a full pool needs
  bool pressure = true;
  std::uint64_t pressure_reserve = 0;  ///< bytes
};

/// The other hosts of a pool.
struct HostOptions {
  std::string file;  ///< empty: this host only
  std::string remote_shell = "ssh";
  bool standby = false;  ///< a second manager
};

/// The mount of a pool.
struct MountOptions {
  std::string directory;   ///< empty: in a job, job_mount()
  bool name_only = false;  ///< there is no mount: the directory is only the pool's name
  bool on_hosts = false;   ///< also on each of the other hosts
  bool allow_other = false;
  bool devices = false;  ///< open device nodes and honour set-ID bits
  std::uint64_t window_bytes = 0;
  std::string close;  ///< what close() waits for
  std::string names;  ///< when changes of names are answered
};

/// The drain of images into a parallel file system or an object store.
struct DrainTarget {
  std::string directory;         ///< or an object store; empty: nothing is drained
  std::string endpoint;          ///< of the object store; empty: Amazon's
  std::uint64_t rate = 0;        ///< of each benefactor, bytes a second; 0: no limit
  std::uint64_t total_rate = 0;  ///< of all benefactors; 0: no limit
  bool yields = true;
};

/// How bytes move between the processes of a pool.
struct NetworkOptions {
  std::string listen;
  std::string transport = "auto";
  bool trusted = false;  ///< content goes over TCP in clear
};

/// How images are cut into chunks, and where their chunks are placed.
struct ImageOptions {
  std::uint32_t chunk_bytes = 0;
  std::uint32_t stripe_width = 0;
  std::string naming;
  std::string chunking;
  std::uint32_t copies = 0;  ///< the number of a Redundancy
  std::string topology;      ///< path of a file
  std::string policy;
};

/// The work of a pool on its chunks: copying, checking, garbage collection.
struct UpkeepOptions {
  std::uint64_t copy_rate = 0;                           ///< bytes a second; 0: no limit
  std::uint64_t scrub_rate = limits::kScrubRateDefault;  ///< bytes a second; 0: only on request
  std::uint32_t gc_period = 600;                         ///< seconds; 0: only on request
  bool reader_copies = true;  ///< hosts that read one file pass its chunks on to each other
};

/// The files that a pool writes for people and later jobs, and what its daemons tell.
struct RecordOptions {
  std::string state;      ///< state directory; empty: as the mount says
  std::string report;     ///< path of a file
  std::string safe_file;  ///< path of the file that names the newest safe set; empty: none
  std::string undrained;  ///< path of the file of undrained sets; empty: none
  std::string metrics;    ///< address for all daemons; empty: none
  std::string log_level;
};

/// The batch job whose nodes have the pool, and the part of one node, as `up --job` starts it.
struct BatchOptions {
  bool all_nodes = false;              ///< `--job`
  std::uint32_t benefactor_nodes = 0;  ///< the job's last nodes lend memory; 0: all nodes
  std::string exchange;                ///< a folder that all nodes share
  bool one_node = false;               ///< `--node`: this process starts the part of its node
  bool detach = false;
  std::string job_id;
  std::string nodes;
  std::string lenders;
};

/// The command line that asked for the pool.
struct Invocation {
  std::string program;                 ///< argv[0]
  std::vector<std::string> arguments;  ///< the words behind the subcommand
  std::string config_file;
  bool json = false;
  bool shell_lines = false;  ///< print lines for a shell to evaluate
};

struct UpOptions {
  LentSpace lent;
  HostOptions hosts;
  MountOptions mount;
  DrainTarget drain;
  NetworkOptions network;
  ImageOptions images;
  bool encrypt = false;  ///< benefactors cannot read images
  UpkeepOptions upkeep;
  RecordOptions records;
  BatchOptions batch;
  Invocation invocation;
};

}  // namespace stdchk::tools
