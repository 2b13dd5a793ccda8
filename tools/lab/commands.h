#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "tools/lab/job_plan.h"

/// The subcommands that measure and advise. Each prints its result and returns
/// the exit status (base/exit_status.h).
namespace stdchk::tools {

struct RestartTestOptions {
  std::string pool;
  std::string path;  ///< a folder of the pool
  std::string set;   ///< a set's name; empty: the newest complete set
  std::uint32_t readers = 64;
  bool json = false;
  // On several nodes, as in RestartOptions:
  bool job = false;
  std::string hosts;
  std::string remote_shell;
};
int run_restart_test(const RestartTestOptions& options, const std::string& invoked_as);

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

}  // namespace stdchk::tools
