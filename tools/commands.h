#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "tools/job_plan.h"

/// The subcommands that ask a pool. Each prints its result and returns the exit status. 0: good. 1:
/// the answer is no. 2: the command failed, and standard error says why.
namespace stdchk::tools {

inline constexpr int kExitGood = 0;
inline constexpr int kExitNo = 1;
inline constexpr int kExitError = 2;

struct ListOptions {
  std::string pool;
  std::string path;
  bool details = false;
  bool json = false;
  bool aborted = false;
};
int run_list(const ListOptions& options);

struct StatOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_stat(const StatOptions& options);

struct StatusOptions {
  std::string pool;
  std::string path;
  bool json = false;
  bool prometheus = false;
  bool targets = false;  ///< prints the daemons' metrics addresses for Prometheus
};
int run_status(const StatusOptions& options);

struct ReportOptions {
  std::string pool;
  std::string path;
  bool json = false;
  bool ends = false;      ///< the pool is about to end; an unused pool gets no report
  std::string undrained;  ///< only keep this file up to date (see Undrained)
  bool lost = false;      ///< only print the losses that this file lists of a lost pool
};
int run_report(const ReportOptions& options);

struct DrainOptions {
  std::string pool;
  std::string path;
  bool wait = false;
  std::uint32_t timeout_s = 0;  ///< limit of the wait; 0: none
  bool no_manifest = false;     ///< another waiting command writes the manifests
  bool before_down = false;     ///< do not wait for chunks that memory has lost
  bool json = false;
};
int run_drain(const DrainOptions& options);

struct SafeOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_safe(const SafeOptions& options);

struct PolicyOptions {
  std::string pool;
  std::string action;  ///< "get" or "set"
  std::string path;
  std::vector<std::string> settings;  ///< KEY=VALUE
  bool json = false;
};
int run_policy(const PolicyOptions& options);

struct SetOptions {
  std::string pool;
  std::string action;  ///< "list", "pin" or "unpin"
  std::string path;    ///< of a folder; with pin and unpin FOLDER/A.*.Tj
  bool json = false;
};
int run_set(const SetOptions& options);
struct ScrubOptions {
  std::string pool;
  std::string path;
  bool wait = false;
  bool json = false;
};
int run_scrub(const ScrubOptions& options);

struct RecoverOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_recover(const RecoverOptions& options);

struct CheckOptions {
  std::string pool;
  std::string path;
  bool json = false;
};
int run_check(const CheckOptions& options);

struct GarbageOptions {
  std::string pool;
  std::string path;
  bool dry_run = false;
  bool json = false;
};
int run_garbage(const GarbageOptions& options);

struct VerifyOptions {
  std::string path;  ///< a drain directory, or a folder in it
  bool json = false;
};
int run_verify(const VerifyOptions& options);

struct StageInOptions {
  std::string pool;
  std::string path;  ///< a drain directory, or a folder in it
  std::string to;    ///< a folder of the pool; empty: its root
  std::string set;   ///< A.*.Tj; empty: the set that `latest` names in each folder
  bool all = false;  ///< every file
  std::uint32_t readers = 16;
  bool json = false;
};
int run_stage_in(const StageInOptions& options);

struct RestartTestOptions {
  std::string pool;
  std::string path;  ///< a folder of the pool
  std::string set;   ///< A.*.Tj; empty: the newest complete set
  std::uint32_t readers = 64;
  bool json = false;
  // On several nodes, as in RestartOptions:
  bool job = false;
  std::string hosts;
  std::string remote_shell;
};
int run_restart_test(const RestartTestOptions& options, const std::string& invoked_as);

struct RestartOptions {
  std::string pool;
  std::string path;  ///< a folder of the pool
  std::string set;   ///< A.*.Tj; empty: the newest complete set
  std::string to;    ///< copies the images to this local folder; empty: only reads them
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;  ///< 0: rank and ranks come from the launcher's environment
  std::string run;          ///< name shared by all ranks of this start; empty: from the environment
  std::uint32_t timeout_s = 600;
  // For the process that loads for all ranks:
  bool job = false;          ///< on all nodes of the batch job; each node is one rank
  std::string hosts;         ///< file, or names with commas: the host of each rank
  std::string remote_shell;  ///< empty: the shell of `up`, or in a job its launcher
  // For one node's part, which that process starts:
  std::string load;  ///< ranks, with commas: loads their images without a barrier
  /// this process becomes this program when all ranks have their images
  std::vector<std::string> command;
};
int run_restart(RestartOptions& options, const std::string& invoked_as);

struct SimilarityCommand {
  std::vector<std::string> files;
  std::uint64_t sample_bytes = 4 * limits::kMiB;  ///< bytes of an image for slow techniques; 0: all
  bool json = false;
};
int run_similarity(const SimilarityCommand& command);
struct BenchOptions {
  std::string pool;
  std::vector<std::string> directories;      ///< the first one is the reference
  std::uint64_t size = 256 * limits::kMiB;   ///< of one image
  std::uint64_t block_bytes = limits::kMiB;  ///< of one call
  std::uint32_t ranks = 4;                   ///< ranks that write one image each at once
  std::uint32_t rounds = 3;
  bool json = false;
};
/// Measures the given directories, or without any the pool's mount.
int run_bench(BenchOptions& options);

struct TopOptions {
  std::string pool;
  std::string path;
  std::uint32_t interval_s = 1;
  std::uint32_t count = 0;  ///< number of pictures; 0: until a signal
};
int run_top(const TopOptions& options);

struct AdviseOptions {
  JobFigures job;
  // As given; empty: the value in `job`.
  std::string node_mtbf;
  std::string compute;
  std::string communicate;
  std::string coordinate;
  std::string contend;
  std::string alpha;
  std::string mount;   ///< measures job.node_rate through this mount; empty: as given
  std::string target;  ///< measures job.pfs_rate in this directory; empty: as given
  std::uint64_t measure_bytes = 256 * limits::kMiB;  ///< largest image in each measurement
  std::uint32_t measure_s = 20;                      ///< duration of each measurement
  std::uint32_t table_nodes = 2048;
  std::string plot;
  bool json = false;
};
/// Fills the job's figures from the texts and the measurements, then prints the advice.
int run_advise(AdviseOptions& options);

/// Prints "stdchk: text" to standard error; returns kExitError.
int complain(const std::string& text);

}  // namespace stdchk::tools
