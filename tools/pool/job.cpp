#include "tools/pool/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>

#include "core/base/units.h"
#include "tools/base/restore.h"
#include "tools/base/show.h"
#include "tools/drained/undrained.h"
#include "tools/pool/meeting.h"
#include "tools/pool/member_key.h"
#include "tools/pool/members.h"
#include "tools/pool/old_meeting.h"
#include "tools/pool/up.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kLaunchPatience = 60s;
constexpr auto kDownPatience = 60s;
/// time for other nodes to report their failures after the first
constexpr double kTellSeconds = 2;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Whether the text is a valid path component and argument.
bool is_plain(const std::string& text) {
  return !text.empty() && text.size() < 200 && text[0] != '-' && text[0] != '.' &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[]") ==
             std::string::npos;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ',';
    text += word;
  }
  return text;
}

Outcome<BatchJob> slurm_job() {
  BatchJob job;
  job.id = environment("SLURM_JOB_ID");
  const std::string list = environment("SLURM_JOB_NODELIST");
  auto names = run_command({"scontrol", "show", "hostnames", list}, "", 30s);
  if (!names || names->status != 0) {
    return problem("scontrol does not tell the nodes of {}: {}", list,
                   names ? names->err : names.error().text);
  }
  std::istringstream words(names->out);
  for (std::string name; words >> name;) job.nodes.push_back(name);
  return job;
}

Outcome<BatchJob> pbs_job(const std::vector<std::string>& remote_shell) {
  BatchJob job;
  job.system = BatchJob::System::kPbs;
  job.id = environment("PBS_JOBID");
  const std::string path = environment("PBS_NODEFILE");
  std::ifstream file(path);
  if (!file) return problem("PBS_NODEFILE \"{}\" cannot be read", path);
  std::size_t place = 0;
  for (std::string name; file >> name; ++place) {
    if (std::ranges::find(job.nodes, name) != job.nodes.end()) continue;
    job.nodes.push_back(name);
    job.places.push_back(std::to_string(place));
  }
  if (!find_program("pbsdsh", "")) job.remote_shell = remote_shell;
  return job;
}

/// The command for a remote shell. Words go by standard input, because remote shells treat
/// arguments differently.
std::vector<std::string> remote_shell_command(const BatchJob& job, const std::string& node,
                                              const std::vector<std::string>& words) {
  std::string script = "exec";
  for (const auto& word : words) script += " " + shell_word(word);
  std::vector<std::string> command = {
      "sh", "-c", "script=$1; shift; printf '%s\\n' \"$script\" | \"$@\"", "sh", script};
  command.insert(command.end(), job.remote_shell.begin(), job.remote_shell.end());
  command.insert(command.end(), {node, "sh", "-s"});
  return command;
}

std::vector<std::string> one_node_command(const BatchJob& job, std::size_t index,
                                          const std::vector<std::string>& words) {
  if (!job.remote_shell.empty()) return remote_shell_command(job, job.nodes[index], words);
  std::vector<std::string> command;
  if (job.system == BatchJob::System::kPbs) {
    command = {"pbsdsh", "-n", job.places[index], "--"};
  } else {
    command = {"srun",
               "--overlap",
               "--nodes=1",
               "--ntasks=1",
               "--ntasks-per-node=1",
               "--nodelist=" + job.nodes[index],
               "--mpi=none",
               "--job-name=stdchk-down",
               "--input=none"};
  }
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

/// Makes a command for each group of nodes that the launcher starts together.
std::vector<std::vector<std::string>> launch_commands(const BatchJob& job,
                                                      const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> commands;
  if (job.system == BatchJob::System::kPbs) {
    for (std::size_t i = 0; i < job.nodes.size(); ++i) {
      commands.push_back(one_node_command(job, i, words));
    }
    return commands;
  }
  const std::string count = std::to_string(job.nodes.size());
  // The command runs beside the application's steps and takes none of their processors. The loss of
  // a node does not end the other nodes.
  commands.push_back({"srun", "--overlap", "--no-kill", "--nodes=" + count, "--ntasks=" + count,
                      "--ntasks-per-node=1", "--nodelist=" + joined(job.nodes), "--mpi=none",
                      "--kill-on-bad-exit=0", "--job-name=stdchk", "--input=none"});
  commands.back().insert(commands.back().end(), words.begin(), words.end());
  return commands;
}

/// Returns the reason why a command on a node has failed, or an empty text after a success.
/// The command pbsdsh of OpenPBS exits with 0 even if its task fails, and prints that the task
/// failed. The task's own output goes to the job's output.
std::string failure_of(const BatchJob& job, const Outcome<CommandOutput>& done) {
  if (!done) return done.error().text;
  if (done->status != 0 && done->err.empty()) return fmt::format("exit status {}", done->status);
  if (done->status != 0) return done->err;
  if (job.system != BatchJob::System::kPbs || !job.remote_shell.empty()) return {};
  std::istringstream lines(done->out + "\n" + done->err);
  for (std::string line; std::getline(lines, line);) {
    const bool ended = line.find(": task 0x") != std::string::npos &&
                       line.find(" exit status ") != std::string::npos;
    const bool refused =
        line.find("spawn failed") != std::string::npos || line.ends_with(" on spawn");
    if (ended || refused) return line + "; the reason is in the job's output";
  }
  return {};
}

/// A shell script that runs `stdchk WORDS...` for the pool of these files. The files exist only
/// while the command runs.
std::string pool_script(const std::string& program, const PrivateFiles& files,
                        const std::vector<std::string>& words) {
  std::string script =
      "umask 077\nd=$(mktemp -d) || exit 1\ntrap 'rm -rf \"$d\"' EXIT\ntrap 'exit 1' HUP INT "
      "TERM\n";
  // The text goes by standard input to a shell with a built-in printf, so no command line shows it.
  for (const auto& [name, text] : files) {
    script += fmt::format("printf '%s' {} >\"$d\"/{} || exit 1\n", shell_word(text), name);
  }
  script += fmt::format("b={}; [ -x \"$b\" ] || b=stdchk\n\"$b\" {} --pool \"$d\"",
                        shell_word(program), words.front());
  for (auto word = words.begin() + 1; word != words.end(); ++word)
    script += " " + shell_word(*word);
  return script + " </dev/null\n";
}

/// Runs `stdchk WORDS...` on one node; gives the node the pool's files where no launcher reaches
/// it.
Outcome<CommandOutput> run_with_pool(const BatchJob& job, std::size_t index,
                                     const std::string& program, const PoolRecord& pool,
                                     std::vector<std::string> words, Duration longest,
                                     const std::function<bool()>& enough) {
  if (job.remote_shell.empty()) {
    words.insert(words.begin(), program);
    return run_command(one_node_command(job, index, words), "", longest, enough);
  }
  PrivateFiles files;
  const auto folder = open_state(pool.directory);
  if (!folder) return problem(folder.error());
  for (const char* name : {"pool.json", "secret", "key"}) {
    auto text = folder->read(name, kRecordBytesMax);
    if (!text && text.error().code == Code::kNotFound && name == std::string_view("key")) continue;
    if (!text) return failed(fmt::format("{}/{}", pool.directory, name), text.error());
    files[name] = std::move(*text);
  }
  // The node gets its own key. Without the pool's secret, this process is a member, and passes its
  // own key on.
  if (const auto keys = MemberKeys::of(pool.secret_file())) {
    files["secret"] = keys->make(transport::secure::Role::kClient);
  }
  std::vector<std::string> command = job.remote_shell;
  command.insert(command.end(), {job.nodes[index], "sh", "-s"});
  return run_command(command, pool_script(program, files, words), longest, enough);
}

/// The program's absolute path, equal on all nodes.
Outcome<std::string> own_program(const std::string& invoked_as) {
  auto program = find_program("stdchk", invoked_as);
  if (program) *program = absolute_path(*program);
  return program;
}

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

/// Returns the command that starts the part of the pool on each node. `changes` are further options.
std::vector<std::string> part_command(const std::string& program, const UpOptions& options,
                                      const BatchJob& job,
                                      const std::vector<std::string>& changes) {
  std::vector<std::string> words = {program, "up"};
  const auto add = [&](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  add(options.invocation.arguments);
  // The parts run in another folder. The last of repeated options counts.
  if (!options.drain.directory.empty()) add({"--drain", absolute_path(options.drain.directory)});
  if (!options.records.safe_file.empty()) {
    add({"--safe-file", absolute_path(options.records.safe_file)});
  }
  add({"--node", "--job-id", job.id, "--nodes", joined(job.nodes)});
  add(changes);
  return words;
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Outcome<BatchJob> current_job(const std::vector<std::string>& remote_shell) {
  Outcome<BatchJob> job = problem(
      "--job finds neither SLURM_JOB_ID nor PBS_JOBID in the environment: it belongs into a batch "
      "script; without a batch system use --hosts");
  if (!environment("SLURM_JOB_ID").empty()) {
    job = slurm_job();
  } else if (!environment("PBS_JOBID").empty()) {
    job = pbs_job(remote_shell);
  }
  if (!job) return job;
  if (!is_plain(job->id)) return problem("the job's number \"{}\" is not valid", job->id);
  if (job->nodes.empty()) return problem("job {} has no nodes", job->id);
  return job;
}

std::string node_name() {
  std::string slurm = environment("SLURMD_NODENAME");
  if (!slurm.empty()) return slurm;
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

bool is_listed(const std::string& nodes, const std::string& name) {
  return std::ranges::any_of(split(nodes, ','), [&](const std::string& word) {
    return word == name || word.substr(0, word.find('.')) == name.substr(0, name.find('.'));
  });
}

std::string job_state_directory(const std::string& job_id) {
  return fmt::format("/tmp/stdchk-{}-jobs/{}", ::geteuid(), job_id);
}

std::string job_mount(const std::string& job_id) { return job_state_directory(job_id) + ".mount"; }

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
  report_losses(undrained,
                options.drain.directory.empty() ? "" : absolute_path(options.drain.directory),
                report);
  // An earlier run of a requeued job has left it.
  if (auto removed = remove_meeting(exchange); !removed) return problem(removed.error());
  if (auto made = OwnFolder::make(exchange, kExchangeRules); !made) {
    return problem("{}", made.error().text);
  }
  const std::string state = job_state_directory(job->id);
  if (auto made = make_private(fs::path(state).parent_path()); !made) return problem(made.error());
  const auto words = part_command(*program, options, *job,
                                  {"--mount", mount, "--lenders", joined(lenders), "--exchange",
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
  elsewhere.drain = options.drain.directory;
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

std::vector<NodeEnd> run_on_nodes(const BatchJob& job, const std::string& invoked_as,
                                  const PoolRecord& pool,
                                  const std::function<std::vector<std::string>(std::size_t)>& words,
                                  Duration longest) {
  std::vector<NodeEnd> ends(job.nodes.size());
  const auto program = own_program(invoked_as);
  if (!program) {
    for (NodeEnd& end : ends) end.failure = program.error().text;
    return ends;
  }
  const auto began = std::chrono::steady_clock::now();
  std::atomic<bool> one_failed{false};
  const auto run_one = [&](std::size_t i) {
    std::optional<std::chrono::steady_clock::time_point> failing_since;
    bool given_up = false;
    const auto enough = [&] {
      if (one_failed && !failing_since) failing_since = std::chrono::steady_clock::now();
      given_up = asked_to_end() || (failing_since && seconds_since(*failing_since) > kTellSeconds);
      return given_up;
    };
    const auto done = run_with_pool(job, i, *program, pool, words(i), longest, enough);
    ends[i].seconds = seconds_since(began);
    const std::string failure = failure_of(job, done);
    ends[i].good = failure.empty();
    if (ends[i].good || given_up) return;
    ends[i].failure = failure;
    one_failed = true;
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < job.nodes.size(); ++i) threads.emplace_back(run_one, i);
  for (auto& thread : threads) thread.join();
  return ends;
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
    const auto done = run_command(one_node_command(job, i, {*program, "down", "--node-of", job.id}),
                                  "", kDownPatience);
    if (done) notes[i] = done->out;
    failures[i] = failure_of(job, done);
  };
  // The first node, with the manager, ends last: the others say goodbye to the manager.
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < job.nodes.size(); ++i) threads.emplace_back(stop, i);
  for (auto& thread : threads) thread.join();
  stop(0);
  all.told_losses = failures[0].empty();
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
  if (!is_plain(job_id)) return {{}, {fmt::format("\"{}\" is no job's number", job_id)}, {}};
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
