#pragma once

#include <cstdint>
#include <string>

#include "core/limits.h"

namespace stdchk::tools {

/// More copies than this are not advised.
inline constexpr std::uint32_t kCopiesMax = 3;
/// Of every simulation, so that each run says the same.
inline constexpr std::uint64_t kAdviceSeed = 1;

/// A job and the machine that it runs on. Rates are bytes a second and more than 0.
struct JobFigures {
  std::uint32_t nodes = 64;                        ///< at least 2
  std::uint64_t memory_bytes = 32 * limits::kGiB;  ///< that each node saves
  std::uint64_t lend_bytes = 32 * limits::kGiB;    ///< that each benefactor node lends
  std::uint64_t node_mtbf_s = 5ULL * 365 * 86400;  ///< of one node
  std::uint64_t node_rate = 1 * limits::kGiB;      ///< of one node into the pool
  std::uint64_t benefactor_rate = 0;               ///< that one node takes in; 0: node_rate
  std::uint64_t pfs_rate = 10 * limits::kGiB;      ///< of all nodes to the parallel file system
  std::uint32_t stripe_width = 0;                  ///< 0: to be advised
  std::uint64_t compute_s = 20 * 3600;             ///< t_comp, without checkpoints and failures
  std::uint64_t communicate_s = 4 * 3600;          ///< t_comm, likewise
  /// alpha, at least 1: how much longer communication takes over the whole run, because images are
  /// drained, or copied, meanwhile. 0: to be worked out, for the drain alone.
  double alpha = 0;
  std::uint64_t coordinate_s = 1;  ///< t_coord: until all ranks have stopped at the same point
  std::uint64_t contend_s = 0;     ///< t_cont: what ranks then wait for one another
};

/// A run of the whole job with checkpoints.
struct RunCost {
  double write_s = 0;             ///< t_write: what writing keeps the program, once
  double pause_s = 0;             ///< t_coord + t_write + t_cont
  double interval_s = 0;          ///< of work between checkpoints (Daly 2006)
  double young_s = 0;             ///< the same, by Young 1974
  double alpha = 1;               ///< of its communication
  std::uint64_t checkpoints = 0;  ///< n: the whole intervals that its work has
  double total_s = 0;             ///< t_tot, without failures
  double expected_s = 0;          ///< with them; at least t_tot
  double slowdown = 0;            ///< expected_s in units of t_comp + t_comm
};

/// Why a stripe is as wide as is advised.
enum class WidthReason : std::uint8_t {
  kGiven,        ///< it was not to be advised
  kFillsWriter,  ///< so many benefactors take in what one node sends
  kBenefactors,  ///< more would be needed for that, and there are no more
};

/// What is advised for a job.
struct JobPlan {
  double mtbf_s = 0;           ///< of the whole job
  double drain_s = 0;          ///< until a set is safe on the parallel file system
  std::uint32_t failures = 0;  ///< of nodes, to be survived until then
  std::uint32_t copies = 0;    ///< 0: kCopiesMax are not enough; the rest is for so many
  std::uint32_t stripe_width = 0;
  WidthReason width_reason = WidthReason::kGiven;
  std::uint32_t width_wanted = 0;        ///< that takes in what one node sends
  std::uint32_t benefactor_nodes = 0;    ///< that two sets need
  std::uint32_t benefactors_wanted = 0;  ///< that take in what all nodes send at once
  RunCost with_pool;
  RunCost without_pool;  ///< each checkpoint straight to the parallel file system
};

/// With the fewest copies that survive the failures which come, with a probability above 0.1 %,
/// before a set is drained. Takes seconds for thousands of nodes.
JobPlan plan_for(const JobFigures& job);

/// The run with a checkpoint that takes `write_s` to write, and to read `restart_s`: the model of
/// Walters and Chaudhary ("Replication-Based Fault Tolerance for MPI Applications", IEEE TPDS
/// 20(7), 2009), t_tot = t_comp + alpha t_comm + n (t_coord + t_write + t_cont), with the interval
/// and the failures of Daly's complete model: without failures the two are the same.
RunCost cost_of(const JobFigures& job, double write_s, double restart_s, double alpha);

/// Alpha when each set is drained for `drain_s` after every `period_s`: meanwhile the drain takes
/// its part of each node's link, though never more than half of it.
double communication_slowdown(const JobFigures& job, double drain_s, double period_s);

/// One sentence without its full stop.
std::string describe_width(const JobFigures& job, const JobPlan& plan);

}  // namespace stdchk::tools
