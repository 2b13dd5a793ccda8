#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/units.h"
#include "core/policy/redundancy.h"
#include "metrics/exposition.h"
#include "metrics/listen_address.h"
#include "metrics/pool_figures.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/mounts.h"
#include "tools/base/show.h"
#include "tools/drained/file_groups.h"
#include "tools/pool/batch_job.h"
#include "tools/pool/commands.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

/// Returns "running" or "ended", or "on HOST" for a process of another host, whose state is
/// unknown.
std::string member_state(const Member& member) {
  if (!member.host.empty()) return "on " + member.host;
  return is_alive(member) ? "running" : "ended";
}

std::string_view mount_text(MountState state) {
  switch (state) {
    case MountState::kNone:
      return "not mounted";
    case MountState::kAlive:
      return "mounted";
    case MountState::kDead:
      return "dead";
  }
  return "unknown";
}

/// The manager's answers, if it answers.
struct Answers {
  msg::StatPool::Reply pool;
  std::vector<msg::BenefactorInfo> benefactors;
  std::size_t aborted = 0;  ///< number of aborted writes that the manager remembers
  msg::PoolConfig config;
  std::optional<FileGroup> safe;  ///< the newest set that is drained whole
};
Outcome<Answers> ask(const PoolRecord& pool) {
  auto filesystem = connect(pool);
  if (!filesystem) return problem(filesystem.error());
  auto statistics = (*filesystem)->stat_pool();
  if (!statistics) return failed("the manager", statistics.error());
  auto benefactors = (*filesystem)->benefactors();
  if (!benefactors) return failed("the manager", benefactors.error());
  auto aborted = (*filesystem)->aborted();
  if (!aborted) return failed("the manager", aborted.error());
  Answers answers{*statistics, *benefactors, aborted->size(), (*filesystem)->config(), {}};
  if (answers.config.drain_directory.empty()) return answers;
  const auto root = (*filesystem)->attributes(kRootFile);
  if (!root) return failed("the manager", root.error());
  const auto groups = find_groups(**filesystem, "", *root);
  if (!groups) return problem(groups.error());
  if (const FileGroup* safe = newest_safe_set(*groups)) answers.safe = *safe;
  return answers;
}

Json to_json(const Answers& answers) {
  const auto& pool = answers.pool;
  Json benefactors = Json::array();
  for (const auto& info : answers.benefactors) {
    benefactors.push_back({{"id", info.id.value},
                           {"state", metrics::name_of(info.state)},
                           {"host", info.host_name},
                           {"pid", info.pid},
                           {"arena_bytes", info.arena_bytes},
                           {"free_bytes", info.free_bytes},
                           {"addresses", info.addresses}});
  }
  return {{"total_bytes", pool.total_bytes},
          {"free_bytes", pool.free_bytes},
          {"evictable_bytes", pool.evictable_bytes},
          {"files", pool.file_count},
          {"chunks", pool.chunk_count},
          {"logical_bytes", pool.logical_bytes},
          {"stored_bytes", pool.stored_bytes},
          {"drain_pending_files", pool.drain_pending_files},
          {"drain_pending_bytes", pool.drain_pending_bytes},
          {"drain_failed_files", pool.drain_failed_files},
          {"safe_set", answers.safe ? to_json(*answers.safe) : Json()},
          {"sessions", pool.session_count},
          {"readers", pool.reader_count},
          {"read_bytes",
           {{"pool", pool.totals.readers.pool_bytes},
            {"cache", pool.totals.readers.cached_bytes},
            {"drain", pool.totals.readers.drained_bytes}}},
          {"aborted", answers.aborted},
          {"clients", pool.client_count},
          {"requests_served", pool.requests_served},
          {"epoch", pool.epoch.value},
          {"copies", redundancy_of(answers.config.copies).value_or(Redundancy{}).copies},
          {"redundancy", redundancy_text(answers.config.copies)},
          {"debt_chunks", pool.debt_chunks},
          {"debt_bytes", pool.debt_bytes},
          {"lost_chunks", pool.lost_chunks},
          {"copies_made", pool.copies_made},
          {"copied_bytes", pool.copied_bytes},
          {"stripes", pool.stripes},
          {"parity_bytes", pool.parity_bytes},
          {"rebuilt_chunks", pool.rebuilt_chunks},
          {"log_copies", pool.log_copies},
          {"log_copies_wanted", pool.log_copies_wanted},
          {"standby", pool.standby},
          {"standby_follows", pool.standby_follows},
          {"log_bytes", pool.log_bytes},
          {"log_bytes_needed", pool.log_bytes_needed},
          {"log_bytes_max", pool.log_bytes_max},
          {"log_full", pool.log_full},
          {"standby_keepers", pool.standby_quorum},
          {"standby_reached", pool.standby_reached},
          {"log_advice", pool.log_advice},
          {"scrub",
           {{"running", pool.scrub.running},
            {"passes", pool.scrub.passes},
            {"checked_bytes", pool.scrub.checked_bytes},
            {"wrong_chunks", pool.scrub.wrong_chunks},
            {"repaired_chunks", pool.scrub.repaired_chunks},
            {"rate", pool.scrub.rate_bytes_per_s}}},
          {"chunk_bytes", answers.config.chunk_bytes},
          {"stripe_width", answers.config.stripe_width},
          {"naming", naming_text(answers.config.naming)},
          {"benefactors", benefactors}};
}

void print_copies(const Answers& answers) {
  const auto& pool = answers.pool;
  const std::string debt = pool.debt_chunks == 0
                               ? "none is missing"
                               : fmt::format("{} chunks lack copies, {} are still to be copied",
                                             pool.debt_chunks, format_bytes(pool.debt_bytes));
  fmt::print("copies      {} of each chunk unless asked otherwise; {}\n",
             redundancy_text(answers.config.copies), debt);
  if (pool.stripes > 0) {
    fmt::print("parity      {} stripes with {} of parity, {} chunks made again from theirs\n",
               pool.stripes, format_bytes(pool.parity_bytes), pool.rebuilt_chunks);
  }
  if (pool.lost_chunks > 0) {
    fmt::print("lost        {} chunks have no copy left; the manager's log names the images\n",
               pool.lost_chunks);
  }
  fmt::print(
      "metadata    on {} benefactors beside the manager's disk{}\n", pool.log_copies,
      pool.log_copies == 0 ? ": a loss of that disk loses all images that are not drained" : "");
  if (!pool.standby.empty()) {
    fmt::print("standby     at {} {}\n", pool.standby,
               pool.standby_follows ? "follows the manager" : "is silent: no takeover is possible");
  }
  for (const std::string& sentence : pool.log_advice) fmt::print("warning     {}\n", sentence);
  const auto& scrub = pool.scrub;
  fmt::print("scrub       {}, {} passes, {} checked; {} wrong, {} repaired\n",
             scrub.running ? "runs" : "waits", scrub.passes, format_bytes(scrub.checked_bytes),
             scrub.wrong_chunks, scrub.repaired_chunks);
}

void print_answers(const Answers& answers) {
  const auto& pool = answers.pool;
  fmt::print("space       {} free of {}, {} more when drained images are given up\n",
             format_bytes(pool.free_bytes), format_bytes(pool.total_bytes),
             format_bytes(pool.evictable_bytes));
  fmt::print("content     {} files, {} in {} chunks that take {}\n", pool.file_count,
             format_bytes(pool.logical_bytes), pool.chunk_count, format_bytes(pool.stored_bytes));
  fmt::print("activity    {} open sessions, {} readers, {} clients, {} requests served\n",
             pool.session_count, pool.reader_count, pool.client_count, pool.requests_served);
  const auto& reads = pool.totals.readers;
  fmt::print("read        {} from the pool, {} from caches, {} from the drain directory\n",
             format_bytes(reads.pool_bytes), format_bytes(reads.cached_bytes),
             format_bytes(reads.drained_bytes));
  if (answers.aborted > 0) {
    fmt::print("aborted     {} writes ended without a commit; `stdchk ls --aborted` names them\n",
               answers.aborted);
  }
  if (answers.config.drain_directory.empty()) {
    fmt::print("drain       no drain directory\n");
  } else {
    fmt::print("drain       {} files ({}) to go, {} failed; into {}\n", pool.drain_pending_files,
               format_bytes(pool.drain_pending_bytes), pool.drain_failed_files,
               answers.config.drain_directory);
    fmt::print("safe set    {}\n", answers.safe
                                       ? fmt::format("{}, of {}", shown(answers.safe->name),
                                                     time_text(answers.safe->newest_ns))
                                       : "none: no complete set is drained whole");
  }
  print_copies(answers);
  std::vector<std::vector<std::string>> table = {
      {"", "BENEFACTOR", "STATE", "HOST", "PID", "FREE", "OF"}};
  for (const auto& info : answers.benefactors) {
    table.push_back({"", fmt::format("b{}", info.id.value),
                     std::string(metrics::name_of(info.state)), info.host_name,
                     std::to_string(info.pid), format_bytes(info.free_bytes),
                     format_bytes(info.arena_bytes)});
  }
  print_table(table, {4, 5, 6});
}

void print_metrics(const std::string& mount, bool mounted, const Outcome<Answers>& answers) {
  metrics::Exposition out(metrics::Labels{{"pool", mount}});
  out.gauge("stdchk_up", "1 when the manager answers.", std::uint64_t{answers.has_value()});
  out.gauge("stdchk_mounted", "1 when the mount answers here.", std::uint64_t{mounted});
  if (answers) {
    metrics::add_pool(out, answers->pool, answers->benefactors);
    metrics::add_safe_set(out, answers->safe ? answers->safe->newest_ns : 0);
  }
  fmt::print("{}", out.text());
}

void print_metrics_addresses(const PoolRecord& pool) {
  std::vector<std::vector<std::string>> table = {{"", "METRICS OF", "HOST", "AT"}};
  for (const auto& member : pool.members) {
    const std::string at = metrics_address(member);
    if (!at.empty()) table.push_back({"", member.role, member.host, "http://" + at + "/metrics"});
  }
  if (table.size() > 1) print_table(table, {});
}

/// Prints Prometheus's file_sd_configs: prometheus.io/docs/prometheus/latest/configuration. Skips
/// metrics that only another host can read, with a line on standard error.
void print_targets(const PoolRecord& pool) {
  Json all = Json::array();
  for (const auto& member : pool.members) {
    auto at = metrics::ListenAddress::parse(metrics_address(member));
    if (metrics_address(member).empty() || !at) continue;
    if (!member.host.empty() && at->is_loopback()) {
      fmt::print(stderr, "stdchk: the metrics of the {} on {} can be read there only\n",
                 member.role, member.host);
      continue;
    }
    if (at->is_any()) at->host = member.host.empty() ? node_name() : member.host;
    all.push_back(
        {{"targets", {at->text()}}, {"labels", {{"pool", pool.mount}, {"role", member.role}}}});
  }
  print(all);
}

}  // namespace

int run_status(const StatusOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  if (options.targets) {
    print_targets(*pool);
    return kExitGood;
  }
  // A mount is dead when none of its processes lives.
  const bool served = std::ranges::any_of(pool->members, [](const Member& member) {
    return member.role == "mount" && is_alive(member);
  });
  const MountInfo mount = served ? mount_unasked(pool->mount) : mount_at(pool->mount);
  const bool mounts = std::ranges::count(pool->members, "mount", &Member::role) > 0;
  bool all_run = mount.state == MountState::kAlive || !mounts;
  Json members = Json::array();
  for (const auto& member : pool->members) {
    const std::string state = member_state(member);
    if (state == "ended") all_run = false;
    members.push_back({{"role", member.role},
                       {"host", member.host},
                       {"pid", member.process.pid},
                       {"state", state},
                       {"metrics", metrics_address(member)},
                       {"log", member.log}});
  }
  auto answers = ask(*pool);
  if (options.prometheus) {
    print_metrics(pool->mount, mount.state == MountState::kAlive, answers);
    return answers && all_run ? kExitGood : kExitNo;
  }
  if (options.json) {
    Json json = {{"mount", pool->mount},     {"mount_state", mount_text(mount.state)},
                 {"drain", pool->drain},     {"state_directory", pool->directory},
                 {"created", pool->created}, {"trusted_network", pool->trusted_network},
                 {"members", members},       {"manager_answers", answers.has_value()}};
    if (answers) {
      json["pool"] = to_json(*answers);
    } else {
      json["error"] = answers.error().text;
    }
    print(json);
    return answers && all_run ? kExitGood : kExitNo;
  }
  fmt::print("pool        {} ({}), since {}\nstate       {}\n", pool->mount,
             mount_text(mount.state), pool->created, pool->directory);
  if (pool->trusted_network) {
    fmt::print(
        "network     trusted: content crosses TCP in clear; other hosts on the network can read "
        "it, but cannot change it unnoticed\n");
  }
  if (answers) print_answers(*answers);
  print_metrics_addresses(*pool);
  for (const auto& member : pool->members) {
    if (member_state(member) != "ended") continue;
    fmt::print("The {} with pid {} has ended; its log: {}\n", member.role, member.process.pid,
               member.log);
  }
  if (!answers) {
    fmt::print(stderr, "stdchk: {}\n", answers.error().text);
    return kExitNo;
  }
  return all_run ? kExitGood : kExitNo;
}

}  // namespace stdchk::tools
