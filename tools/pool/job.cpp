#include "tools/pool/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/units.h"
#include "tools/base/restore.h"
#include "tools/base/show.h"
#include "tools/drained/undrained.h"
#include "tools/pool/drain_place.h"
#include "tools/pool/job_commands.h"
#include "tools/pool/meeting.h"
#include "tools/pool/members.h"
#include "tools/pool/old_meeting.h"
#include "tools/pool/up.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLaunchPatience = 60s;
constexpr auto kDownPatience = 60s;

/// Waits for the answers of all nodes.
Outcome<void> wait_for_nodes(const BatchJob& job, const std::string& exchange,
                             const std::vector<ProcessId>& launchers, const std::string& log,
                             Duration longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  for (;;) {
    // Look before reading answers: a part's answer exists before its launcher ends.
    const bool launching = std::ranges::any_of(
        launchers, [](const ProcessId& launcher) { return is_alive(launcher); });
    const Answers answers = Meeting(exchange).answers();
    if (!answers.failures.empty()) return problem("{}", answers.failures);
    if (answers.ready == job.nodes.size()) return {};
    if (!launching) {
      return problem("the launcher ended while {} of {} nodes were ready: {}", answers.ready,
                     job.nodes.size(), last_words(log));
    }
    if (std::chrono::steady_clock::now() > until) {
      return problem("{} of {} nodes were ready in time; is {} on a file system that all share? {}",
                     answers.ready, job.nodes.size(), exchange, last_words(log));
    }
    sleep_for(20ms);
  }
}

void report(const DownReport& down) {
  for (const auto& note : down.notes) {
    fmt::print("{}: {}\n", node_name(), shown_message(note));
  }
  for (const auto& trouble : down.troubles) {
    fmt::print(stderr, "{}: {}\n", node_name(), shown_message(trouble));
  }
  fmt::print("{}", shown_message(down.card));
  (void)std::fflush(stdout);
}

std::string launch_log(const std::string& job_id) {
  return job_state_directory(job_id) + ".launch.log";
}

DownReport stop_part(const std::string& job_id) {
  const std::string state = job_state_directory(job_id);
  std::error_code code;
  if (!fs::exists(state, code)) {
    if (const auto lost = find_running_in(state)) return stop_pool(*lost);
    return {};
  }
  auto record = load(state);
  if (record) return stop_pool(*record);
  fs::remove_all(state, code);
  return {};
}

/// Waits for a signal, or until no process of the part runs. Prints into the launch log.
void supervise(const PoolRecord& record) {
  const auto runs = [](const Member& member) { return is_alive(member); };
  while (!asked_to_end() && std::ranges::any_of(record.members, runs)) sleep_for(100ms);
  if (!asked_to_end()) return;
  fmt::print("{}: a signal asked the part of the pool on this node to end\n", node_name());
  report(stop_pool(record));
}

/// The parts' messages after they were ready: which one ended early, and why.
std::vector<std::string> launch_notes(const std::string& job_id) {
  std::ifstream log(launch_log(job_id));
  std::vector<std::string> notes;
  for (std::string line; std::getline(log, line);) notes.push_back("while it ran: " + line);
  return notes;
}

/// Returns the command that starts the part of the pool on each node. `changes` are further
/// options.
std::vector<std::string> part_command(const std::string& program, const UpOptions& options,
                                      const BatchJob& job,
                                      const std::vector<std::string>& changes) {
  std::vector<std::string> words = {program, "up"};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(options.invocation.arguments);
  // The parts run in another folder. The last of repeated options counts.
  if (!options.drain.directory.empty()) add({"--drain", drain_place(options.drain)});
  if (!options.records.safe_file.empty()) {
    add({"--safe-file", absolute_path(options.records.safe_file)});
  }
  add({"--node", "--job-id", job.id, "--nodes", joined_with_commas(job.nodes)});
  add(changes);
  return words;
}

}  // namespace

Outcome<PoolRecord> start_in_job(UpOptions& options) {
  auto job = current_job(split_words(options.hosts.remote_shell));
  if (!job) return problem(job.error());
  auto program = own_program(options.invocation.program);
  if (!program) return problem(program.error());
  const std::size_t count = job->nodes.size();
  if (options.batch.benefactor_nodes > count) {
    return problem("--benefactor-nodes {} are more than the {} nodes of the job",
                   options.batch.benefactor_nodes, count);
  }
  if (options.batch.benefactor_nodes == 0) {
    options.batch.benefactor_nodes = static_cast<std::uint32_t>(count);
  }
  const std::vector<std::string> lenders(job->nodes.end() - options.batch.benefactor_nodes,
                                         job->nodes.end());
  const std::string meeting =
      absolute_path(options.batch.exchange.empty() ? "." : options.batch.exchange);
  const std::string exchange = meeting + "/.stdchk-job-" + job->id;
  const std::string mount =
      options.mount.directory.empty() ? job_mount(job->id) : absolute_path(options.mount.directory);
  const std::string report = options.records.report.empty()
                                 ? fmt::format("{}/stdchk-{}.out", meeting, job->id)
                                 : absolute_path(options.records.report);
  const std::string undrained = fmt::format("{}/stdchk-{}.undrained", meeting, job->id);
  report_losses(undrained, drain_place(options.drain), report);
  // An earlier run of a requeued job has left it.
  if (auto removed = remove_meeting(exchange); !removed) return problem(removed.error());
  if (auto made = OwnFolder::make(exchange, kExchangeRules); !made) {
    return problem("{}", made.error().text);
  }
  const std::string state = job_state_directory(job->id);
  if (auto made = make_private(fs::path(state).parent_path()); !made) return problem(made.error());
  const auto words =
      part_command(*program, options, *job,
                   {"--mount", mount, "--lenders", joined_with_commas(lenders), "--exchange",
                    exchange, "--report", report, "--undrained", undrained});
  const std::string log = launch_log(job->id);
  std::vector<ProcessId> launchers;
  Outcome<void> done;
  for (const auto& command : launch_commands(*job, words)) {
    auto started = start_detached(command[0], {command.begin() + 1, command.end()}, log);
    if (!started) done = problem(started.error());
    if (started) launchers.push_back(*started);
  }
  const Duration longest = kLaunchPatience + ready_longest(options.lent.memory_bytes);
  if (done) done = wait_for_nodes(*job, exchange, launchers, log, longest);
  if (!done) {
    (void)stop_in_job(*job, options.invocation.program);
    for (const auto& launcher : launchers) (void)end_process(launcher, 5s);
  }
  // Each node's own state directory has the keys.
  if (auto gone = remove_meeting(exchange); !gone) fmt::print(stderr, "{}\n", gone.error().text);
  if (!done) return problem("{}", done.error().text);
  auto record = load(state);
  if (record) return record;
  // For a shell of the job outside its nodes.
  PoolRecord elsewhere;
  elsewhere.mount = mount;
  elsewhere.drain = drain_place(options.drain);
  return elsewhere;
}

std::string trap_commands(const PoolRecord& pool, const std::string& invoked_as) {
  const auto program = own_program(invoked_as);
  if (!program || pool.directory.empty()) return {};
  // A pool that is down already needs no action. The trap of another pool is replaced. Without a
  // drain directory no data outlives the script anyway.
  std::string down =
      fmt::format("[ ! -e {} ] || {} down ", shell_word(pool.path()), shell_word(*program));
  if (!pool.drain.empty()) {
    // A script with exit status 0 was successful if its images are drained.
    down = "[ $? = 0 ] && stdchk_success=--success || stdchk_success=; " + down +
           "$stdchk_success --drain --timeout ${stdchk_drain_seconds:-0} " +
           shell_word(pool.mount) + " || [ -z \"$stdchk_success\" ] || exit 1";
  } else {
    down += shell_word(pool.mount);
  }
  const std::string term = fmt::format("stdchk_drain_seconds={}; exit 143", kTermDrainSeconds);
  return fmt::format(
      "case $(trap -p EXIT 2>/dev/null) in ''|*/pool.json*) trap {} EXIT; trap {} TERM;; esac\n",
      shell_word(down), shell_word(term));
}

int run_node_part(UpOptions options) {
  notice_end_signals();
  const std::string name = node_name();
  const Meeting meeting(options.batch.exchange);
  options.records.state = job_state_directory(options.batch.job_id);
  Outcome<PoolRecord> record = problem("");
  if (auto made = make_private(fs::path(options.records.state).parent_path()); !made) {
    record = problem(made.error());
  } else {
    report(stop_part(options.batch.job_id));  // from an earlier run of a requeued job
    record = start_pool(options);
  }
  if (!record) {
    fmt::print(stderr, "stdchk: {}: {}\n", name, record.error().text);
    (void)meeting.publish_failure(name, record.error().text);
    return 2;
  }
  if (auto published = meeting.publish_ready(name); !published) {
    fmt::print(stderr, "stdchk: {}: {}\n", name, published.error().text);
    report(stop_pool(*record));
    return 2;
  }
  if (!options.batch.detach) supervise(*record);
  return 0;
}

DownReport stop_in_job(const BatchJob& job, const std::string& invoked_as) {
  DownReport all;
  auto program = own_program(invoked_as);
  if (!program) {
    all.troubles.push_back(program.error().text);
    return all;
  }
  std::vector<std::string> failures(job.nodes.size());
  std::vector<std::string> notes(job.nodes.size());
  const auto stop = [&](std::size_t i) {
    const auto done = run_command(node_command(job, i, {*program, "down", "--node-of", job.id}), "",
                                  kDownPatience);
    if (done) notes[i] = done->out;
    failures[i] = command_failure(job, done);
  };
  // The first node, with the manager, ends last: the others say goodbye to the manager.
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < job.nodes.size(); ++i) threads.emplace_back(stop, i);
  for (auto& thread : threads) thread.join();
  stop(0);
  all.reported_losses = failures[0].empty();
  for (std::size_t i = 0; i < job.nodes.size(); ++i) {
    std::istringstream lines(notes[i]);
    for (std::string line; std::getline(lines, line);) all.notes.push_back(line);
    if (failures[i].empty()) continue;
    std::ranges::replace(failures[i], '\n', ' ');
    all.notes.push_back(
        fmt::format("{} could not be reached ({}); a node that was lost has ended "
                    "its part of the pool",
                    job.nodes[i], failures[i]));
  }
  return all;
}

DownReport stop_node_part(const std::string& job_id) {
  if (!is_job_id(job_id)) return {{}, {fmt::format("\"{}\" is no job's number", job_id)}, {}};
  const std::string jobs = fs::path(job_state_directory(job_id)).parent_path();
  std::error_code code;
  if (fs::exists(fs::symlink_status(jobs, code))) {
    // Another user may have made it, to have files removed there or behind its links.
    if (const auto own = OwnFolder::open(jobs, kStateRules); !own)
      return {{}, {own.error().text}, {}};
  }
  auto notes = launch_notes(job_id);
  ::unlink(launch_log(job_id).c_str());
  DownReport report = stop_part(job_id);
  report.notes.insert(report.notes.begin(), notes.begin(), notes.end());
  return report;
}

}  // namespace stdchk::tools
