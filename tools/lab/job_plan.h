#pragma once

#include <cstdint>
#include <string>

#include "core/base/limits.h"

namespace stdchk::tools {

/// The largest number of copies that is advised.
inline constexpr std::uint32_t kCopiesMax = 3;
/// The seed of every simulation, so that each run gives the same advice.
inline constexpr std::uint64_t kAdviceSeed = 1;

/// A job and its machine. Rates are bytes a second and more than 0.
struct JobFigures {
  std::uint32_t nodes = 64;                        ///< at least 2
  std::uint64_t memory_bytes = 32 * limits::kGiB;  ///< saved by each node
  std::uint64_t lend_bytes = 32 * limits::kGiB;    ///< lent by each benefactor node
  std::uint64_t node_mtbf_s = 5ULL * 365 * 86400;  ///< of one node
  std::uint64_t node_rate = 1 * limits::kGiB;      ///< of one node into the pool
  std::uint64_t benefactor_rate = 0;               ///< into a benefactor node; 0: node_rate
  std::uint64_t pfs_rate = 10 * limits::kGiB;      ///< of all nodes to the parallel file system
  std::uint32_t stripe_width = 0;                  ///< 0: to be advised
  std::uint64_t compute_s = 20 * 3600;             ///< t_comp, without checkpoints and failures
  std::uint64_t communicate_s = 4 * 3600;          ///< t_comm, likewise
  /// alpha, at least 1: the factor by which draining or copying images lengthens communication over
  /// the whole run. 0: computed from the drain alone.
  double alpha = 0;
  std::uint64_t coordinate_s = 1;  ///< t_coord: until all ranks have stopped at the same point
  std::uint64_t contend_s = 0;     ///< t_cont: waiting of ranks for one another afterwards
};

/// A run of the whole job with checkpoints.
struct RunCost {
  double write_s = 0;             ///< t_write: how long one write stops the program
  double pause_s = 0;             ///< t_coord + t_write + t_cont
  double interval_s = 0;          ///< of work between checkpoints (Daly 2006)
  double young_s = 0;             ///< interval_s by Young 1974
  double alpha = 1;               ///< of its communication
  std::uint64_t checkpoints = 0;  ///< n: the number of whole intervals of its work
  double total_s = 0;             ///< t_tot, without failures
  double expected_s = 0;          ///< with failures; at least t_tot
  double slowdown = 0;            ///< expected_s in units of t_comp + t_comm
};

/// The reason for the advised stripe width.
enum class WidthReason : std::uint8_t {
  kGiven,        ///< the user gave the width
  kFillsWriter,  ///< this many benefactors receive what one node sends
  kBenefactors,  ///< all benefactors; even they receive less than a node sends
};

/// The advice for a job.
struct JobPlan {
  double mtbf_s = 0;           ///< of the whole job
  double drain_s = 0;          ///< until a set is safe on the parallel file system
  std::uint32_t failures = 0;  ///< node failures to be survived until then
  std::uint32_t copies = 0;    ///< 0: kCopiesMax are too few; the other figures are for kCopiesMax
  std::uint32_t stripe_width = 0;
  WidthReason width_reason = WidthReason::kGiven;
  std::uint32_t width_wanted = 0;        ///< benefactors that receive what one node sends
  std::uint32_t benefactor_nodes = 0;    ///< benefactor nodes needed for two sets
  std::uint32_t benefactors_wanted = 0;  ///< benefactors that receive what all nodes send at once
  RunCost with_pool;
  RunCost without_pool;  ///< every checkpoint goes straight to the parallel file system
};

/// Plans a job with the fewest copies that survive the failures before a set is drained, except
/// with a probability of 0.1 %. Takes seconds for thousands of nodes.
JobPlan plan_for(const JobFigures& job);

/// The cost of a run whose checkpoints take `write_s` to write and `restart_s` to read. Uses the
/// model of Walters and Chaudhary ("Replication-Based Fault Tolerance for MPI Applications", IEEE
/// TPDS 20(7), 2009). That is t_tot = t_comp + alpha t_comm + n (t_coord + t_write + t_cont), with
/// the interval and the failures of Daly's complete model. Without failures both models agree.
RunCost cost_of(const JobFigures& job, double write_s, double restart_s, double alpha);

/// Alpha when each set drains for `drain_s` in every `period_s`. The drain takes its part of each
/// node's link, at most half.
double communication_slowdown(const JobFigures& job, double drain_s, double period_s);

/// A sentence without its full stop.
std::string describe_width(const JobFigures& job, const JobPlan& plan);

}  // namespace stdchk::tools
