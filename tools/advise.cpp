#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/units.h"
#include "tools/advice.h"
#include "tools/commands.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kSeed = 1;
constexpr std::uint32_t kCopiesMax = 3;

/// 8, 16, ... and the user's own number.
std::vector<std::uint32_t> sizes_for(std::uint32_t nodes, std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = 8; size <= most; size *= 2) sizes.push_back(size);
  if (nodes > 1 && std::ranges::find(sizes, nodes) == sizes.end()) sizes.push_back(nodes);
  std::ranges::sort(sizes);
  return sizes;
}

/// Failures that come within `seconds` with a probability above 0.1 %: the Poisson distribution.
std::uint32_t failures_within(double seconds, double mtbf_s) {
  const double mean = seconds / mtbf_s;
  double term = std::exp(-mean);
  double sum = term;
  std::uint32_t count = 0;
  while (sum < 0.999 && count < 100000) sum += term *= mean / ++count;
  return count;
}

struct Figures {
  double mtbf_s = 0;        ///< of the whole job
  double checkpoint_s = 0;  ///< that the application waits
  double drain_s = 0;       ///< until a set is safe on the parallel file system
  double restart_s = 0;
  double interval_s = 0;
  double slowdown = 0;
  double without_s = 0;  ///< a checkpoint straight to the parallel file system
  double slowdown_without = 0;
  std::uint32_t failures = 0;  ///< to be survived until the drain is done
  std::uint32_t copies = 0;    ///< 0: three are not enough
  std::uint32_t benefactor_nodes = 0;
};

Figures work_out(const AdviseOptions& options) {
  Figures out;
  const auto bytes = static_cast<double>(options.memory_bytes) * options.nodes;
  out.mtbf_s = static_cast<double>(options.node_mtbf_s) / options.nodes;
  const auto rate = static_cast<double>(options.node_rate);
  out.without_s = bytes / static_cast<double>(options.pfs_rate);
  out.drain_s = out.without_s;
  out.failures = failures_within(out.drain_s, out.mtbf_s);
  // Without a second copy nothing may fail before the drain is done.
  for (std::uint32_t copies = 1; copies <= kCopiesMax && out.copies == 0; ++copies) {
    const auto allowed = simulate_striped(options.nodes, copies, options.stripe_width, kSeed);
    if (allowed.at_999 >= out.failures) out.copies = copies;
  }
  const std::uint32_t copies = std::max(1U, out.copies);
  out.checkpoint_s = static_cast<double>(options.memory_bytes) * copies / rate;
  out.restart_s = static_cast<double>(options.memory_bytes) / rate;
  out.interval_s = daly_interval(out.checkpoint_s, out.mtbf_s);
  out.slowdown = slowdown(out.interval_s, out.checkpoint_s, out.restart_s, out.mtbf_s);
  const double plain = daly_interval(out.without_s, out.mtbf_s);
  out.slowdown_without = slowdown(plain, out.without_s, out.without_s, out.mtbf_s);
  // Two sets, with all copies: the one that is kept and the one that is written.
  out.benefactor_nodes = static_cast<std::uint32_t>(
      std::ceil(2 * bytes * copies / static_cast<double>(options.lend_bytes)));
  return out;
}

Json to_json(const AllowedFailures& row) {
  return {{"nodes", row.nodes},
          {"copies", row.copies},
          {"at_90", row.at_90},
          {"at_99", row.at_99},
          {"at_99_9", row.at_999}};
}

void print_tables(const std::vector<AllowedFailures>& replicas,
                  const std::vector<AllowedFailures>& striped, std::uint32_t width) {
  fmt::print(
      "\nNode failures that leave every image readable with 90, 99 and 99.9 %.\n"
      "Left: 1 to 3 replicas of whole images on random nodes, besides the writer's own (Walters "
      "and "
      "Chaudhary, Table 1).\n"
      "Right: this pool, 1 to 3 copies in all, striped over {} benefactors, one on each node.\n",
      width);
  std::vector<std::vector<std::string>> table = {
      {"NODES", "1 REPLICA", "2 REPLICAS", "3 REPLICAS", "1 COPY", "2 COPIES", "3 COPIES"}};
  for (std::size_t i = 0; i < replicas.size(); i += kCopiesMax) {
    std::vector<std::string> row = {std::to_string(replicas[i].nodes)};
    for (const auto* part : {&replicas, &striped}) {
      for (std::size_t k = i; k < i + kCopiesMax; ++k) {
        const AllowedFailures& cell = (*part)[k];
        row.push_back(fmt::format("{} {} {}", cell.at_90, cell.at_99, cell.at_999));
      }
    }
    table.push_back(std::move(row));
  }
  print_table(table, {0, 1, 2, 3, 4, 5, 6});
}

std::string time_of(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

void print_figures(const AdviseOptions& options, const Figures& figures) {
  fmt::print("the job loses a node every          {}\n", time_of(figures.mtbf_s));
  fmt::print("checkpoint after each               {} of work\n", time_of(figures.interval_s));
  fmt::print("a checkpoint stops the program for  {}; it is drained after {}\n",
             time_of(figures.checkpoint_s), time_of(figures.drain_s));
  if (figures.copies == 0) {
    fmt::print(
        "copies                              more than {}: until a set is drained up to {} nodes "
        "may fail; a faster drain helps\n",
        kCopiesMax, figures.failures);
  } else {
    fmt::print(
        "copies                              {}: until a set is drained up to {} nodes may fail\n",
        figures.copies, figures.failures);
  }
  fmt::print("benefactor nodes                    {} that lend {} each\n", figures.benefactor_nodes,
             format_bytes(options.lend_bytes));
  fmt::print(
      "total time                          {:.2f} times the work; {:.2f} times when writing "
      "straight to the parallel file system\n",
      figures.slowdown, figures.slowdown_without);
}

}  // namespace

int run_advise(const AdviseOptions& options) {
  const Figures figures = work_out(options);
  const auto sizes = sizes_for(options.nodes, options.table_nodes);
  std::vector<AllowedFailures> replicas(sizes.size() * kCopiesMax);
  std::vector<AllowedFailures> striped(replicas.size());
  std::atomic<std::size_t> next{replicas.size()};  // the largest first: they take longest
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next--; at > 0 && at <= replicas.size(); at = next--) {
        const std::uint32_t size = sizes[(at - 1) / kCopiesMax];
        const auto copies = static_cast<std::uint32_t>((at - 1) % kCopiesMax + 1);
        replicas[at - 1] = simulate_replicas(size, copies, kSeed);
        striped[at - 1] = simulate_striped(size, copies, options.stripe_width, kSeed);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (!options.plot.empty()) {
    std::ofstream file(options.plot);
    file << plot_svg(replicas, striped);
    file.close();
    if (!file) return complain(fmt::format("{} cannot be written", options.plot));
  }
  if (!options.json) {
    print_figures(options, figures);
    print_tables(replicas, striped, options.stripe_width);
    return kExitGood;
  }
  Json left = Json::array();
  Json right = Json::array();
  for (const auto& row : replicas) left.push_back(to_json(row));
  for (const auto& row : striped) right.push_back(to_json(row));
  print({{"job_mtbf_s", figures.mtbf_s},
         {"interval_s", figures.interval_s},
         {"checkpoint_s", figures.checkpoint_s},
         {"drain_s", figures.drain_s},
         {"failures_until_drained", figures.failures},
         {"copies", figures.copies},
         {"benefactor_nodes", figures.benefactor_nodes},
         {"slowdown", figures.slowdown},
         {"slowdown_without_pool", figures.slowdown_without},
         {"replicas", left},
         {"striped", right}});
  return kExitGood;
}

}  // namespace stdchk::tools
