// Advises how to checkpoint a job, from given or measured figures.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/base/units.h"
#include "core/files/pool_files.h"
#include "core/policy/copy_scatter.h"
#include "tools/ask/set_folders.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/mounts.h"
#include "tools/base/pool_record.h"
#include "tools/base/process.h"
#include "tools/base/show.h"
#include "tools/lab/advice.h"
#include "tools/lab/commands.h"
#include "tools/lab/image_bench.h"
#include "tools/lab/job_plan.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

/// 8, 16, ... and the user's own number.
std::vector<std::uint32_t> sizes_for(std::uint32_t nodes, std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t size = 8; size <= most; size *= 2) sizes.push_back(size);
  if (nodes > 1 && std::ranges::find(sizes, nodes) == sizes.end()) sizes.push_back(nodes);
  std::ranges::sort(sizes);
  return sizes;
}

/// Parses a time into `seconds`; an empty `text` leaves it unchanged.
Outcome<void> take_time(const char* flag, const std::string& text, std::uint64_t least,
                        std::uint64_t& seconds) {
  if (text.empty()) return {};
  const auto given = parse_seconds(text);
  // At most ten thousand years, so that sums of times stay exact.
  constexpr std::uint64_t kMost = 10'000ULL * 365 * 86400;
  if (!given || *given < least || *given > kMost) {
    return problem("{} \"{}\" is not valid; allowed: a time such as 90s, 15m, 12h or 1825d", flag,
                   text);
  }
  seconds = *given;
  return {};
}

Outcome<void> take_alpha(const std::string& text, double& alpha) {
  if (text.empty()) return {};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, alpha);
  if (error == std::errc{} && rest == end && alpha >= 1 && alpha <= 1000) return {};
  return problem("--alpha \"{}\" is not valid; allowed: a factor from 1 to 1000, such as 1.05",
                 text);
}

Outcome<void> apply_given_figures(AdviseOptions& options) {
  JobFigures& job = options.job;
  if (job.node_rate == 0 || job.pfs_rate == 0) {
    return problem("--node-rate and --pfs-rate must be more than 0");
  }
  const std::tuple<const char*, const std::string&, std::uint64_t, std::uint64_t&> times[] = {
      {"--mtbf", options.node_mtbf, 1, job.node_mtbf_s},
      {"--compute", options.compute, 1, job.compute_s},
      {"--communicate", options.communicate, 0, job.communicate_s},
      {"--coordination", options.coordinate, 0, job.coordinate_s},
      {"--contention", options.contend, 0, job.contend_s},
  };
  for (const auto& [flag, text, least, seconds] : times) {
    if (auto taken = take_time(flag, text, least, seconds); !taken) return taken;
  }
  return take_alpha(options.alpha, job.alpha);
}

/// A rate that was measured in a directory.
struct Measured {
  std::string directory;
  std::uint64_t image_bytes = 0;  ///< image size of the last step
  std::uint64_t rate = 0;         ///< bytes a second
};

/// Measures bytes a second until all are stored and synced. Images grow from one block to
/// `measure_bytes`; begins no step that would end after `measure_s`. Removes the images afterwards.
Outcome<Measured> measure(const std::string& directory, const AdviseOptions& options) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kBlockBytes = limits::kMiB;
  auto scratch = Scratch::make_in(directory);
  if (!scratch) return problem(scratch.error());
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t most = options.measure_bytes / kRanks;
  std::uint64_t image_bytes = kBlockBytes;
  for (std::uint32_t round = 1;; ++round) {
    const auto step_began = std::chrono::steady_clock::now();
    ImageBench bench({image_bytes, kBlockBytes, kRanks});
    const auto rates = bench.write((*scratch)->path(), round);
    if (!rates) return problem(rates.error());
    bench.remove();
    const bool in_time = seconds_since(began) + 2 * seconds_since(step_began) < options.measure_s;
    if (image_bytes >= most || !in_time) {
      return Measured{directory, image_bytes * kRanks,
                      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rates->stored))};
    }
    image_bytes = std::min(2 * image_bytes, most);
  }
}

/// Tells whether the directory lies in a pool's mount.
bool is_in_pool(const std::string& directory) {
  std::string path = absolute_path(directory);
  for (;;) {
    const MountInfo mount = mount_at(path);
    if (mount.state != MountState::kNone) return mount.type == "fuse.stdchk";
    if (path == "/" || path.empty()) return false;
    const auto slash = path.rfind('/');
    path = slash == 0 ? "/" : path.substr(0, slash);
  }
}

/// Measures the mount and the target, if they are given.
Outcome<std::vector<Measured>> measure_rates(AdviseOptions& options) {
  if (!options.mount.empty() && !is_in_pool(options.mount)) {
    return problem("--mount {} is in no mount of a pool", options.mount);
  }
  std::vector<Measured> measured;
  const std::pair<const std::string&, std::uint64_t&> wanted[] = {
      {options.mount, options.job.node_rate}, {options.target, options.job.pfs_rate}};
  for (const auto& [directory, rate] : wanted) {
    if (directory.empty()) continue;
    // Twice the size, because a pool may keep removed files for a while.
    auto room = check_room(directory, 2 * options.measure_bytes, "use less with --measure-size");
    if (!room) return problem(room.error());
  }
  notice_end_signals();
  for (const auto& [directory, rate] : wanted) {
    if (directory.empty()) continue;
    auto found = measure(directory, options);
    if (!found) return problem(found.error());
    rate = found->rate;
    measured.push_back(std::move(*found));
  }
  return measured;
}

Json to_json(const AllowedFailures& row) {
  return {{"nodes", row.nodes},
          {"copies", row.copies},
          {"at_90", row.at_90},
          {"at_99", row.at_99},
          {"at_99_9", row.at_999}};
}

/// The allowed failures in each place of the table.
struct Tables {
  std::vector<AllowedFailures> replicas;  ///< 1 to 3 replicas
  std::vector<AllowedFailures> by_node;   ///< 2 to 4 copies in all
  std::vector<AllowedFailures> pool;      ///< 1 to 3 copies in all
};

void print_tables(const Tables& tables) {
  fmt::print(
      "\nNode failures that leave every image readable with 90, 99 and 99.9 %.\n"
      "Left: 1 to 3 replicas of whole images on random nodes, besides the writer's own (Walters "
      "and Chaudhary, Table 1).\n"
      "Middle: this pool with placement=node, as many copies, a benefactor on each node.\n"
      "Right: this pool with placement=striped, 1 to 3 copies in all, those of a benefactor on {} "
      "others.\n",
      kCopyScatter);
  std::vector<std::vector<std::string>> table = {{"NODES", "1 REPLICA", "2 REPLICAS", "3 REPLICAS",
                                                  "NODE, 2", "NODE, 3", "NODE, 4", "STRIPED, 1",
                                                  "STRIPED, 2", "STRIPED, 3"}};
  for (std::size_t i = 0; i < tables.replicas.size(); i += kCopiesMax) {
    std::vector<std::string> row = {std::to_string(tables.replicas[i].nodes)};
    for (const auto* part : {&tables.replicas, &tables.by_node, &tables.pool}) {
      for (std::size_t k = i; k < i + kCopiesMax; ++k) {
        const AllowedFailures& cell = (*part)[k];
        row.push_back(fmt::format("{} {} {}", cell.at_90, cell.at_99, cell.at_999));
      }
    }
    table.push_back(std::move(row));
  }
  print_table(table, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

std::string time_of(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

template <class... Args>
void print_line(const char* label, fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{:36}{}\n", label, fmt::format(format, std::forward<Args>(args)...));
}

void print_costs(const JobFigures& job, const JobPlan& plan) {
  const RunCost& run = plan.with_pool;
  print_line("checkpoint after each", "{} of work; by Young's formula {}", time_of(run.interval_s),
             time_of(run.young_s));
  print_line("a checkpoint stops the program for",
             "{}: {} coordination, {} writing, {} contention; it is drained after {}",
             time_of(run.pause_s), time_of(static_cast<double>(job.coordinate_s)),
             time_of(run.write_s), time_of(static_cast<double>(job.contend_s)),
             time_of(plan.drain_s));
  print_line("time without failures",
             "{}: {} computing, {:.3f} times {} communication, {} checkpoints",
             time_of(run.total_s), time_of(static_cast<double>(job.compute_s)), run.alpha,
             time_of(static_cast<double>(job.communicate_s)), run.checkpoints);
  print_line("expected time with failures",
             "{}; {} when writing straight to the parallel file system", time_of(run.expected_s),
             time_of(plan.without_pool.expected_s));
  print_line("slowdown", "{:.2f} times the program alone; {:.2f} times when writing straight",
             run.slowdown, plan.without_pool.slowdown);
}

void print_plan(const JobFigures& job, const JobPlan& plan, const std::vector<Measured>& measured) {
  for (const Measured& one : measured) {
    print_line("measured", "{}/s with {} in {}", format_bytes(one.rate),
               format_bytes(one.image_bytes), one.directory);
  }
  print_line("the job loses a node every", "{}", time_of(plan.mtbf_s));
  print_costs(job, plan);
  if (plan.copies == 0) {
    print_line("copies",
               "more than {}: until a set is drained up to {} nodes may fail; a faster drain helps",
               kCopiesMax, plan.failures);
  } else {
    print_line("copies", "{}: until a set is drained up to {} nodes may fail", plan.copies,
               plan.failures);
  }
  print_line("stripe width", "{}: {}", plan.stripe_width, describe_width(job, plan));
  print_line("benefactor nodes", "{} that lend {} each; {} take in what all nodes send at once",
             plan.benefactor_nodes, format_bytes(job.lend_bytes), plan.benefactors_wanted);
}

Json to_json(const RunCost& run) {
  return {{"write_s", run.write_s},       {"checkpoint_s", run.pause_s},
          {"interval_s", run.interval_s}, {"young_interval_s", run.young_s},
          {"alpha", run.alpha},           {"checkpoints", run.checkpoints},
          {"total_s", run.total_s},       {"expected_s", run.expected_s},
          {"slowdown", run.slowdown}};
}

Tables simulate_tables(const std::vector<std::uint32_t>& sizes) {
  Tables tables;
  tables.replicas.resize(sizes.size() * kCopiesMax);
  tables.by_node.resize(tables.replicas.size());
  tables.pool.resize(tables.replicas.size());
  // Begins with the largest sizes, which take longest.
  std::atomic<std::size_t> next{tables.replicas.size()};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next--; at > 0 && at <= tables.replicas.size(); at = next--) {
        const std::uint32_t size = sizes[(at - 1) / kCopiesMax];
        const auto copies = static_cast<std::uint32_t>((at - 1) % kCopiesMax + 1);
        tables.replicas[at - 1] = simulate_replicas(size, copies, kAdviceSeed);
        tables.by_node[at - 1] = simulate_by_node(size, copies + 1, kAdviceSeed);
        tables.pool[at - 1] = simulate_pool(size, copies, kAdviceSeed);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return tables;
}

Json to_json(const JobFigures& job, const JobPlan& plan, const std::vector<Measured>& measured,
             const Tables& tables) {
  Json left = Json::array();
  Json middle = Json::array();
  Json right = Json::array();
  for (const auto& row : tables.replicas) left.push_back(to_json(row));
  for (const auto& row : tables.by_node) middle.push_back(to_json(row));
  for (const auto& row : tables.pool) right.push_back(to_json(row));
  Json rates = Json::array();
  for (const Measured& one : measured) {
    rates.push_back({{"directory", one.directory}, {"bytes", one.image_bytes}, {"rate", one.rate}});
  }
  Json all = to_json(plan.with_pool);
  all.update({{"job_mtbf_s", plan.mtbf_s},
              {"drain_s", plan.drain_s},
              {"coordination_s", job.coordinate_s},
              {"contention_s", job.contend_s},
              {"compute_s", job.compute_s},
              {"communicate_s", job.communicate_s},
              {"node_rate", job.node_rate},
              {"pfs_rate", job.pfs_rate},
              {"measured", rates},
              {"failures_until_drained", plan.failures},
              {"copies", plan.copies},
              {"stripe_width", plan.stripe_width},
              {"stripe_width_reason", describe_width(job, plan)},
              {"benefactor_nodes", plan.benefactor_nodes},
              {"benefactor_nodes_for_rate", plan.benefactors_wanted},
              {"without_pool", to_json(plan.without_pool)},
              {"replicas", left},
              {"by_node", middle},
              {"pool", right}});
  return all;
}

/// Returns the folders of the measured pool whose names ask for a policy; none without a pool.
std::vector<FittingFolder> find_fitting(const AdviseOptions& options) {
  if (options.mount.empty()) return {};
  const auto located = locate("", options.mount);
  if (!located) return {};
  auto folders = examine_set_folders(*located->filesystem);
  if (!folders) return {};
  return std::move(folders->fitting);
}

}  // namespace

int run_advise(AdviseOptions& options) {
  if (auto taken = apply_given_figures(options); !taken) return complain(taken.error().text);
  const auto measured = measure_rates(options);
  if (!measured) return complain(measured.error().text);
  const JobFigures& job = options.job;
  const JobPlan plan = plan_for(job);
  const Tables tables = simulate_tables(sizes_for(job.nodes, options.table_nodes));
  if (asked_to_end()) return complain("ended by a signal");
  if (!options.plot.empty()) {
    const std::string plot = plot_svg(tables.replicas, tables.pool);
    if (auto written = write_file_at_once(options.plot, plot, {.mode = 0666}); !written) {
      return complain(
          fmt::format("{} cannot be written: {}", options.plot, describe(written.error())));
    }
  }
  const std::vector<FittingFolder> fitting = find_fitting(options);
  if (options.json) {
    Json all = to_json(job, plan, *measured, tables);
    all["policies"] = Json::array();
    for (const FittingFolder& folder : fitting) {
      all["policies"].push_back({{"path", folder.path}, {"settings", folder.settings}});
    }
    print(all);
  } else {
    print_plan(job, plan, *measured);
    for (const FittingFolder& folder : fitting) {
      print_line("policy", "{}: {}, as its names are those of {}", shown("/" + folder.path),
                 folder.settings, folder.files);
    }
    print_tables(tables);
  }
  return kExitGood;
}

}  // namespace stdchk::tools
