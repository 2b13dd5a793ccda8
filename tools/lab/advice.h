#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stdchk::tools {

/// How many nodes may fail in turn without a new checkpoint. Every image stays readable with a
/// probability of at least 90, 99 and 99.9 %.
struct AllowedFailures {
  std::uint32_t nodes = 0;
  std::uint32_t copies = 0;
  std::uint32_t at_90 = 0;
  std::uint32_t at_99 = 0;
  std::uint32_t at_999 = 0;
};

/// Simulates whole images: each node keeps its own image and `replicas` more copies on random other
/// nodes. `seed` makes the result repeatable.
/// Sources: Walters and Chaudhary, "Replication-Based Fault Tolerance for MPI Applications", IEEE
/// TPDS 20(7), 2009. Walters and Chaudhary, "A Fault-Tolerant Strategy for Virtualized HPC
/// Clusters", The Journal of Supercomputing 50(3), 2009.
AllowedFailures simulate_replicas(std::uint32_t nodes, std::uint32_t replicas, std::uint64_t seed);
/// Simulates a pool with a benefactor on each node. Each chunk has `copies` copies: one on its
/// benefactor, the others spread over the few that core/policy/copy_scatter.h gives. With many
/// chunks every choice of these occurs, so a stripe's width makes no difference.
AllowedFailures simulate_pool(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed);

/// Simulates a pool with placement=node and a benefactor on each node. The first copy of an image
/// is on the writer's node. The others are whole on the first benefactors in the order of
/// core/policy/copy_scatter.h.
AllowedFailures simulate_by_node(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed);

/// The cheapest interval between checkpoints in seconds: Young 1974, first order.
double young_interval(double checkpoint_s, double mtbf_s);
/// The same by Daly 2006, higher order (his equation 37): seconds of work, without the checkpoint
/// itself.
double daly_interval(double checkpoint_s, double mtbf_s);
/// The expected time for `work_s` of work, in units of it. A checkpoint follows each `interval_s`;
/// failures are random (Daly's complete model, his equation 20).
double slowdown(double interval_s, double checkpoint_s, double restart_s, double mtbf_s);

/// Plots the allowed failures against the number of nodes; one line for each number of copies.
std::string plot_svg(const std::vector<AllowedFailures>& replicas,
                     const std::vector<AllowedFailures>& pool);

}  // namespace stdchk::tools
