#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stdchk::tools {

/// How many nodes may fail, one after the other without a new checkpoint, so that every image can
/// still be read with a probability of at least 90, 99 and 99.9 %.
struct AllowedFailures {
  std::uint32_t nodes = 0;
  std::uint32_t copies = 0;
  std::uint32_t at_90 = 0;
  std::uint32_t at_99 = 0;
  std::uint32_t at_999 = 0;
};

/// Whole images: each node keeps its own and has `replicas` more on other nodes, drawn at random
/// (Walters and Chaudhary, "Replication-Based Fault Tolerance for MPI Applications", IEEE TPDS
/// 20(7), 2009, and "A Fault-Tolerant Strategy for Virtualized HPC Clusters", The Journal of
/// Supercomputing 50(3), 2009). `seed` makes it repeatable.
AllowedFailures simulate_replicas(std::uint32_t nodes, std::uint32_t replicas, std::uint64_t seed);
/// As a pool places them that has a benefactor on each node: every benefactor has chunks, and these
/// `copies` in all, the others spread over the few that core/copy_scatter.h gives. With many chunks
/// each choice among these occurs, so the width of a stripe makes no difference.
AllowedFailures simulate_pool(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed);

/// Seconds between checkpoints that cost least: Young 1974, first order.
double young_interval(double checkpoint_s, double mtbf_s);
/// Daly 2006, higher order (his equation 37): of work, without the checkpoint itself.
double daly_interval(double checkpoint_s, double mtbf_s);
/// Expected time for `work_s` of work, in units of it, with a checkpoint after each `interval_s`
/// and failures at random (Daly's complete model, his equation 20).
double slowdown(double interval_s, double checkpoint_s, double restart_s, double mtbf_s);

/// The allowed failures against the number of nodes, a line for each number of copies.
std::string plot_svg(const std::vector<AllowedFailures>& replicas,
                     const std::vector<AllowedFailures>& pool);

}  // namespace stdchk::tools
