#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/redundancy.h"
#include "core/units.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/mounts.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

using Json = nlohmann::json;

std::string_view state_name(msg::BenefactorState state) {
  switch (state) {
    case msg::BenefactorState::kAlive:
      return "alive";
    case msg::BenefactorState::kSilent:
      return "silent";
    case msg::BenefactorState::kGone:
      return "gone";
  }
  return "unknown";
}

/// "running", "ended", or what can be said of a process on another host.
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

/// What the manager says, when it answers.
struct Answers {
  msg::StatPool::Reply pool;
  std::vector<msg::BenefactorInfo> benefactors;
  std::size_t aborted = 0;  ///< writes, as many as the manager keeps
  msg::PoolConfig config;
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
  return Answers{*statistics, *benefactors, aborted->size(), (*filesystem)->config()};
}

Json to_json(const Answers& answers) {
  const auto& pool = answers.pool;
  Json benefactors = Json::array();
  for (const auto& info : answers.benefactors) {
    benefactors.push_back({{"id", info.id.value},
                           {"state", state_name(info.state)},
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
          {"sessions", pool.session_count},
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
                               : fmt::format("{} chunks lack some, {} are still to be made",
                                             pool.debt_chunks, format_bytes(pool.debt_bytes));
  fmt::print("copies      {} of each chunk unless asked otherwise; {}\n",
             redundancy_text(answers.config.copies), debt);
  if (pool.stripes > 0) {
    fmt::print("parity      {} stripes with {} of parity, {} chunks made again from theirs\n",
               pool.stripes, format_bytes(pool.parity_bytes), pool.rebuilt_chunks);
  }
  if (pool.lost_chunks > 0) {
    fmt::print("lost        {} chunks have no copy any more; the manager's log names the images\n",
               pool.lost_chunks);
  }
  fmt::print("metadata    on {} benefactors beside the manager's disk{}\n", pool.log_copies,
             pool.log_copies == 0 ? ": if that is lost, all is, but what is drained" : "");
  if (!pool.standby.empty()) {
    fmt::print("standby     at {} {}\n", pool.standby,
               pool.standby_follows ? "follows the manager" : "is silent: nobody would take over");
  }
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
  fmt::print("activity    {} open sessions, {} clients, {} requests served\n", pool.session_count,
             pool.client_count, pool.requests_served);
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
  }
  print_copies(answers);
  std::vector<std::vector<std::string>> table = {
      {"", "BENEFACTOR", "STATE", "HOST", "PID", "FREE", "OF"}};
  for (const auto& info : answers.benefactors) {
    table.push_back({"", fmt::format("b{}", info.id.value), std::string(state_name(info.state)),
                     info.host_name, std::to_string(info.pid), format_bytes(info.free_bytes),
                     format_bytes(info.arena_bytes)});
  }
  print_table(table, {4, 5, 6});
}

/// Metrics in Prometheus's text format, version 0.0.4: prometheus.io/docs/instrumenting.
class Metrics {
 public:
  explicit Metrics(std::string mount) : mount_(escaped(mount)) {}
  void gauge(const char* name, const char* help, double value) { add(name, help, "gauge", value); }
  void counter(const char* name, const char* help, double value) {
    add(name, help, "counter", value);
  }
  /// The same metric for another benefactor follows without a head of its own.
  void of_benefactor(const char* name, const char* help, const msg::BenefactorInfo& info,
                     double value) {
    const std::string labels = fmt::format("pool=\"{}\",benefactor=\"b{}\",host=\"{}\"", mount_,
                                           info.id.value, escaped(info.host_name));
    if (std::exchange(last_, name) != name) head(name, help, "gauge");
    fmt::print("stdchk_{}{{{}}} {}\n", name, labels, value);
  }

 private:
  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\' || c == '"') out += '\\';
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return out;
  }
  static void head(const char* name, const char* help, const char* type) {
    fmt::print("# HELP stdchk_{0} {1}\n# TYPE stdchk_{0} {2}\n", name, help, type);
  }
  void add(const char* name, const char* help, const char* type, double value) {
    head(name, help, type);
    fmt::print("stdchk_{}{{pool=\"{}\"}} {}\n", name, mount_, value);
  }

  const std::string mount_;
  const char* last_ = nullptr;
};

void print_metrics(const std::string& mount, bool mounted, const Outcome<Answers>& answers) {
  Metrics metrics(mount);
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  metrics.gauge("up", "1 when the manager answers.", answers ? 1 : 0);
  metrics.gauge("mounted", "1 when the mount answers here.", mounted ? 1 : 0);
  if (!answers) return;
  const auto& pool = answers->pool;
  metrics.gauge("memory_bytes", "Lent memory.", number(pool.total_bytes));
  metrics.gauge("memory_free_bytes", "Lent memory that is not granted and not used.",
                number(pool.free_bytes));
  metrics.gauge("memory_evictable_bytes", "Memory of images that are drained.",
                number(pool.evictable_bytes));
  metrics.gauge("files", "Files in the pool.", number(pool.file_count));
  metrics.gauge("chunks", "Chunks in memory.", number(pool.chunk_count));
  metrics.gauge("logical_bytes", "Bytes of all files.", number(pool.logical_bytes));
  metrics.gauge("stored_bytes", "Memory that they take; equal chunks are stored once.",
                number(pool.stored_bytes));
  metrics.gauge("drain_pending_files", "Files that are still to be drained.",
                number(pool.drain_pending_files));
  metrics.gauge("drain_pending_bytes", "Bytes that are still to be drained.",
                number(pool.drain_pending_bytes));
  metrics.gauge("drain_failed_files", "Of them, those whose last drain has failed.",
                number(pool.drain_failed_files));
  metrics.gauge("copies_missing_chunks", "Chunks with fewer copies than they should have.",
                number(pool.debt_chunks));
  metrics.gauge("copies_missing_bytes", "Bytes that are still to be copied for that.",
                number(pool.debt_bytes));
  metrics.gauge("lost_chunks", "Chunks without a copy, not drained.", number(pool.lost_chunks));
  metrics.gauge("sessions", "Files that are open for writing.", number(pool.session_count));
  metrics.gauge("clients", "Mounts, programs and tools that are connected.",
                number(pool.client_count));
  metrics.counter("requests_total", "Requests that the manager has served.",
                  number(pool.requests_served));
  const auto& totals = pool.totals;
  metrics.counter("images_total", "Files that came to have bytes.", number(totals.images));
  metrics.counter("written_bytes_total", "Bytes that were committed.",
                  number(totals.written_bytes));
  metrics.counter("drained_bytes_total", "Bytes of images that were drained.",
                  number(totals.drained_bytes));
  metrics.counter("at_risk_seconds_total",
                  "Time with an image that one lost benefactor would have taken along.",
                  number(totals.at_risk_ns) / 1e9);
  metrics.counter("copied_bytes_total", "Bytes that benefactors have copied from each other.",
                  number(pool.copied_bytes));
  metrics.counter("scrub_wrong_chunks_total", "Copies whose checksum was wrong.",
                  number(pool.scrub.wrong_chunks));
  for (const auto& info : answers->benefactors) {
    metrics.of_benefactor("benefactor_up", "1 when it answers the manager.", info,
                          info.state == msg::BenefactorState::kAlive ? 1 : 0);
  }
  for (const auto& info : answers->benefactors) {
    metrics.of_benefactor("benefactor_memory_bytes", "Memory that it lends.", info,
                          number(info.arena_bytes));
  }
  for (const auto& info : answers->benefactors) {
    metrics.of_benefactor("benefactor_memory_free_bytes", "Of it, what is free.", info,
                          number(info.free_bytes));
  }
}

}  // namespace

int run_status(const StatusOptions& options) {
  auto pool = find_pool(options.pool, options.path);
  if (!pool) return complain(pool.error().text);
  const MountInfo mount = mount_at(pool->mount);
  bool all_run = mount.state == MountState::kAlive;
  Json members = Json::array();
  for (const auto& member : pool->members) {
    const std::string state = member_state(member);
    if (state == "ended") all_run = false;
    members.push_back({{"role", member.role},
                       {"host", member.host},
                       {"pid", member.process.pid},
                       {"state", state},
                       {"log", member.log}});
  }
  auto answers = ask(*pool);
  if (options.prometheus) {
    print_metrics(pool->mount, mount.state == MountState::kAlive, answers);
    return answers && all_run ? kExitGood : kExitNo;
  }
  if (options.json) {
    Json json = {{"mount", pool->mount},
                 {"mount_state", mount_text(mount.state)},
                 {"drain", pool->drain},
                 {"state_directory", pool->directory},
                 {"created", pool->created},
                 {"members", members},
                 {"manager_answers", answers.has_value()}};
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
  if (answers) print_answers(*answers);
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
