#include "tools/lab/job_plan.h"

#include <cmath>
#include <string>

#include "tests/support/catch.h"
#include "tools/lab/advice.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

constexpr std::uint64_t kMegabyte = limits::kMiB;

/// A small job that is planned quickly; no node fails before a set is drained.
JobFigures small_job() {
  JobFigures job;
  job.nodes = 16;
  job.memory_bytes = 1024 * kMegabyte;
  job.lend_bytes = 2048 * kMegabyte;
  job.node_rate = 1024 * kMegabyte;
  job.pfs_rate = 2048 * kMegabyte;
  return job;
}

/// A variant of small_job() with bad nodes, some of which fail before a set is drained.
JobFigures failing_job(std::uint64_t node_mtbf_s) {
  JobFigures job = small_job();
  job.nodes = 64;
  job.pfs_rate = 64 * kMegabyte;
  job.node_mtbf_s = node_mtbf_s;
  return job;
}

bool is_about(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the time without failures is the sum that the cost model names") {
  JobFigures job = small_job();
  job.compute_s = 40'000;
  job.communicate_s = 10'000;
  job.coordinate_s = 3;
  job.contend_s = 2;
  const RunCost run = cost_of(job, 25, 10, 1.2);
  CHECK(is_about(run.pause_s, 30));
  CHECK(is_about(run.interval_s, daly_interval(30, static_cast<double>(job.node_mtbf_s) / 16)));
  CHECK(run.checkpoints > 0);
  CHECK(static_cast<double>(run.checkpoints) * run.interval_s <= 52'000);
  CHECK(static_cast<double>(run.checkpoints + 1) * run.interval_s > 52'000);
  CHECK(is_about(run.total_s, 40'000 + 1.2 * 10'000 + static_cast<double>(run.checkpoints) * 30));
  CHECK(run.expected_s > run.total_s);
  CHECK(is_about(run.slowdown, run.expected_s / 50'000));
}

TEST_CASE("with ever rarer failures Daly's time becomes that of the cost model") {
  JobFigures job = small_job();
  job.compute_s = 100ULL * 365 * 86400;
  double before = 1;
  for (const std::uint64_t years : {1ULL, 100ULL, 10'000ULL}) {
    job.node_mtbf_s = years * 365 * 86400;
    const RunCost run = cost_of(job, 20, 20, 1);
    const double apart = run.expected_s / run.total_s - 1;
    CHECK(apart > 0);
    CHECK(apart < before / 5);
    before = apart;
  }
  CHECK(before < 1e-4);
}

TEST_CASE("a run that is shorter than the interval has no checkpoint") {
  JobFigures job = small_job();
  job.compute_s = 60;
  job.communicate_s = 0;
  const RunCost run = cost_of(job, 20, 20, 1.5);
  CHECK(run.checkpoints == 0);
  CHECK(is_about(run.total_s, 60));
  CHECK(run.expected_s > 60);
}

TEST_CASE("communication takes longer while images are drained, at most twice as long") {
  JobFigures job = small_job();  // the drain uses an eighth of each link
  CHECK(is_about(communication_slowdown(job, 100, 100), 1 / (1 - 1.0 / 8)));
  CHECK(is_about(communication_slowdown(job, 50, 100), 1 + (1 / (1 - 1.0 / 8) - 1) / 2));
  CHECK(is_about(communication_slowdown(job, 0, 100), 1));
  job.pfs_rate *= 1000;
  CHECK(is_about(communication_slowdown(job, 200, 100), 2));
}

TEST_CASE("alpha is as given, or worked out") {
  JobFigures job = small_job();
  const JobPlan plan = plan_for(job);
  const RunCost& run = plan.with_pool;
  CHECK(run.alpha > 1);
  CHECK(
      is_about(run.alpha, communication_slowdown(job, plan.drain_s, run.interval_s + run.pause_s)));
  CHECK(is_about(plan.without_pool.alpha, 1));
  job.alpha = 1.75;
  CHECK(is_about(plan_for(job).with_pool.alpha, 1.75));
}

TEST_CASE("a stripe has as many benefactors as take in what one node sends") {
  JobFigures job = small_job();
  CHECK(plan_for(job).stripe_width == 1);  // one benefactor is as fast as the node
  job.benefactor_rate = 300 * kMegabyte;
  const JobPlan plan = plan_for(job);
  CHECK(plan.copies == 1);
  CHECK(plan.stripe_width == 4);  // 1024 / 300, rounded up
  CHECK(plan.width_reason == WidthReason::kFillsWriter);
  CHECK(has(describe_width(job, plan), "300.0 MiB/s each, receive the 1.0 GiB/s of one node"));
  // There are 16 images, each over 4 of 16 benefactors.
  CHECK(has(describe_width(job, plan), "the loss of one benefactor loses 4 of 16 images"));
}

TEST_CASE("a stripe is no wider than the number of benefactors") {
  JobFigures job = small_job();
  job.benefactor_rate = 10 * kMegabyte;
  job.lend_bytes = 16'384 * kMegabyte;
  const JobPlan plan = plan_for(job);
  CHECK(plan.benefactor_nodes == 2);
  CHECK(plan.stripe_width == 2);
  CHECK(plan.width_wanted == 103);
  CHECK(plan.benefactors_wanted == 1639);  // 16 times 102.4
  CHECK(plan.width_reason == WidthReason::kBenefactors);
  // Two benefactors shared by 16 nodes.
  CHECK(is_about(plan.with_pool.write_s, 1024.0 / (2 * 10.0 / 16)));
}

TEST_CASE("there are the fewest copies that survive what may fail, in a stripe of any width") {
  JobFigures job = failing_job(900'000);
  job.nodes = 256;
  job.pfs_rate = 256 * kMegabyte;
  job.benefactor_rate = 32 * kMegabyte;
  const JobPlan plan = plan_for(job);
  REQUIRE(plan.failures == 3);
  CHECK(plan.copies == 3);
  CHECK(simulate_pool(job.nodes, 2, kAdviceSeed).at_999 < plan.failures);
  CHECK(simulate_pool(job.nodes, 3, kAdviceSeed).at_999 >= plan.failures);
  CHECK(plan.stripe_width == 32);
  CHECK(plan.width_reason == WidthReason::kFillsWriter);
  job.stripe_width = 8;
  CHECK(plan_for(job).stripe_width == 8);
  CHECK(plan_for(job).copies == 3);
  CHECK(has(describe_width(job, plan_for(job)), "as given"));
}

TEST_CASE("where three copies are not enough the plan says so, and is for three") {
  const JobFigures job = failing_job(20'000);
  const JobPlan plan = plan_for(job);
  CHECK(plan.copies == 0);
  CHECK(is_about(plan.with_pool.write_s, 3));
}
