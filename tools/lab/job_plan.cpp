#include "tools/lab/job_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/units.h"
#include "tools/lab/advice.h"

namespace stdchk::tools {
namespace {

/// The limit of stdchk-manager.
constexpr std::uint32_t kStripeWidthMax = 1024;

/// The number of failures within `seconds` that is exceeded with a probability of at most 0.1 %, by
/// the Poisson distribution.
std::uint32_t failures_within(double seconds, double mtbf_s) {
  const double mean = seconds / mtbf_s;
  double term = std::exp(-mean);
  double sum = term;
  std::uint32_t count = 0;
  while (sum < 0.999 && count < 100000) sum += term *= mean / ++count;
  return count;
}

double bytes_of(const JobFigures& job) { return static_cast<double>(job.memory_bytes) * job.nodes; }

double benefactor_rate(const JobFigures& job) {
  return static_cast<double>(job.benefactor_rate == 0 ? job.node_rate : job.benefactor_rate);
}

/// How images are stored, with the cost and the survived failures.
struct Layout {
  std::uint32_t copies = 0;
  std::uint32_t width = 0;
  WidthReason reason = WidthReason::kGiven;
  std::uint32_t benefactor_nodes = 0;
  double write_s = 0;
  bool survives = false;
};

/// Returns the number of benefactors for two sets with all copies: a stored set, and a set that is
/// being written.
std::uint32_t benefactors_for(const JobFigures& job, std::uint32_t copies) {
  const double needed = std::ceil(2 * bytes_of(job) * copies / static_cast<double>(job.lend_bytes));
  return std::max(copies, static_cast<std::uint32_t>(std::min(needed, 4e9)));
}

/// The seconds that all nodes need to write at once. Each node is limited by its link, its stripe
/// and its share of all benefactors.
double write_time(const JobFigures& job, const Layout& layout) {
  const double one = benefactor_rate(job);
  const double rate = std::min({static_cast<double>(job.node_rate), layout.width * one,
                                layout.benefactor_nodes * one / job.nodes});
  return static_cast<double>(job.memory_bytes) * layout.copies / rate;
}

/// The number of benefactors that can receive what this many nodes send at once.
std::uint32_t receivers_needed(const JobFigures& job, std::uint32_t nodes) {
  const double sent = static_cast<double>(job.node_rate) * nodes;
  const double wanted = std::ceil(sent / benefactor_rate(job));
  return static_cast<std::uint32_t>(std::min(wanted, 1e9));
}

Layout layout_with(const JobFigures& job, std::uint32_t copies, std::uint32_t failures) {
  Layout layout;
  layout.copies = copies;
  layout.benefactor_nodes = benefactors_for(job, copies);
  const std::uint32_t most = std::min({layout.benefactor_nodes, job.nodes, kStripeWidthMax});
  const std::uint32_t wanted = receivers_needed(job, 1);
  layout.width = std::min(wanted, most);
  layout.reason = wanted > most ? WidthReason::kBenefactors : WidthReason::kFillsWriter;
  if (job.stripe_width != 0) {
    layout.width = job.stripe_width;
    layout.reason = WidthReason::kGiven;
  }
  layout.survives = simulate_pool(job.nodes, copies, kAdviceSeed).at_999 >= failures;
  layout.write_s = write_time(job, layout);
  return layout;
}

}  // namespace

RunCost cost_of(const JobFigures& job, double write_s, double restart_s, double alpha) {
  const double mtbf_s = static_cast<double>(job.node_mtbf_s) / job.nodes;
  RunCost run;
  run.write_s = write_s;
  run.pause_s =
      static_cast<double>(job.coordinate_s) + write_s + static_cast<double>(job.contend_s);
  run.interval_s = daly_interval(run.pause_s, mtbf_s);
  run.young_s = young_interval(run.pause_s, mtbf_s);
  run.alpha = alpha;
  const double plain_s =
      static_cast<double>(job.compute_s) + static_cast<double>(job.communicate_s);
  const double work_s =
      static_cast<double>(job.compute_s) + alpha * static_cast<double>(job.communicate_s);
  const double intervals = std::floor(work_s / run.interval_s);
  run.checkpoints = static_cast<std::uint64_t>(intervals);
  run.total_s = work_s + intervals * run.pause_s;
  run.expected_s = work_s * slowdown(run.interval_s, run.pause_s, restart_s, mtbf_s);
  run.slowdown = run.expected_s / plain_s;
  return run;
}

double communication_slowdown(const JobFigures& job, double drain_s, double period_s) {
  const double busy = std::min(1.0, drain_s / period_s);
  const double part = std::min(
      0.5, static_cast<double>(job.pfs_rate) / (static_cast<double>(job.node_rate) * job.nodes));
  return 1 + busy * part / (1 - part);
}

JobPlan plan_for(const JobFigures& job) {
  JobPlan plan;
  plan.mtbf_s = static_cast<double>(job.node_mtbf_s) / job.nodes;
  const double straight_s = bytes_of(job) / static_cast<double>(job.pfs_rate);
  plan.drain_s = straight_s;
  plan.failures = failures_within(plan.drain_s, plan.mtbf_s);
  plan.width_wanted = receivers_needed(job, 1);
  plan.benefactors_wanted = receivers_needed(job, job.nodes);
  Layout best;
  for (std::uint32_t copies = 1; copies <= kCopiesMax && !best.survives; ++copies) {
    best = layout_with(job, copies, plan.failures);
  }
  plan.copies = best.survives ? best.copies : 0;
  plan.stripe_width = best.width;
  plan.width_reason = best.reason;
  plan.benefactor_nodes = best.benefactor_nodes;
  const double restart_s = best.write_s / best.copies;  // a restart reads one copy
  const RunCost plain = cost_of(job, best.write_s, restart_s, 1);
  const double alpha =
      job.alpha != 0 ? job.alpha
                     : communication_slowdown(job, plan.drain_s, plain.interval_s + plain.pause_s);
  plan.with_pool = cost_of(job, best.write_s, restart_s, alpha);
  plan.without_pool = cost_of(job, straight_s, straight_s, 1);
  return plan;
}

std::string describe_width(const JobFigures& job, const JobPlan& plan) {
  const std::string one =
      format_bytes(job.benefactor_rate == 0 ? job.node_rate : job.benefactor_rate);
  std::string why;
  switch (plan.width_reason) {
    case WidthReason::kGiven:
      why = "as given";
      break;
    case WidthReason::kFillsWriter:
      why = fmt::format("this many benefactors, {}/s each, receive the {}/s of one node", one,
                        format_bytes(job.node_rate));
      break;
    case WidthReason::kBenefactors:
      why = fmt::format(
          "there are no more benefactors; it takes {}, {}/s each, to receive the {}/s of one "
          "node",
          plan.width_wanted, one, format_bytes(job.node_rate));
      break;
  }
  if (plan.copies != 1) return why;
  const double lost = std::min<double>(
      job.nodes, static_cast<double>(job.nodes) * plan.stripe_width / plan.benefactor_nodes);
  return why + fmt::format(
                   "; the loss of one benefactor loses {:.0f} of {} images, and more in wider "
                   "stripes",
                   std::ceil(lost), job.nodes);
}

}  // namespace stdchk::tools
