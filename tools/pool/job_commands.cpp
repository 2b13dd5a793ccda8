#include "tools/pool/job_commands.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <sstream>
#include <thread>

#include "core/base/units.h"
#include "tools/base/show.h"
#include "tools/pool/member_key.h"
#include "tools/pool/members.h"

namespace stdchk::tools {
namespace {

/// time for other nodes to report their failures after the first
constexpr double kTellSeconds = 2;

/// The command for a remote shell. Words go by standard input, because remote shells treat
/// arguments differently.
std::vector<std::string> remote_shell_command(const BatchJob& job, const std::string& node,
                                              const std::vector<std::string>& words) {
  const std::string script = "exec " + shell_words(words);
  std::vector<std::string> command = {
      "sh", "-c", "script=$1; shift; printf '%s\\n' \"$script\" | \"$@\"", "sh", script};
  command.insert(command.end(), job.remote_shell.begin(), job.remote_shell.end());
  command.insert(command.end(), {node, "sh", "-s"});
  return command;
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
  return script + " " + shell_words(std::span(words).subspan(1)) + " </dev/null\n";
}

/// Runs `stdchk WORDS...` on one node; gives the node the pool's files where no launcher reaches
/// it.
Outcome<CommandOutput> run_with_pool(const BatchJob& job, std::size_t index,
                                     const std::string& program, const PoolRecord& pool,
                                     std::vector<std::string> words, Duration longest,
                                     const std::function<bool()>& enough) {
  if (job.remote_shell.empty()) {
    words.insert(words.begin(), program);
    return run_command(node_command(job, index, words), "", longest, enough);
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

}  // namespace

std::string joined_with_commas(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ',';
    text += word;
  }
  return text;
}

std::vector<std::string> node_command(const BatchJob& job, std::size_t index,
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

std::vector<std::vector<std::string>> launch_commands(const BatchJob& job,
                                                      const std::vector<std::string>& words) {
  std::vector<std::vector<std::string>> commands;
  if (job.system == BatchJob::System::kPbs) {
    for (std::size_t i = 0; i < job.nodes.size(); ++i) {
      commands.push_back(node_command(job, i, words));
    }
    return commands;
  }
  const std::string count = std::to_string(job.nodes.size());
  // The command runs beside the application's steps and takes none of their processors. The loss of
  // a node does not end the other nodes.
  commands.push_back({"srun", "--overlap", "--no-kill", "--nodes=" + count, "--ntasks=" + count,
                      "--ntasks-per-node=1", "--nodelist=" + joined_with_commas(job.nodes),
                      "--mpi=none", "--kill-on-bad-exit=0", "--job-name=stdchk", "--input=none"});
  commands.back().insert(commands.back().end(), words.begin(), words.end());
  return commands;
}

std::string command_failure(const BatchJob& job, const Outcome<CommandOutput>& done) {
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

Outcome<std::string> own_program(const std::string& invoked_as) {
  auto program = find_program("stdchk", invoked_as);
  if (program) *program = absolute_path(*program);
  return program;
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
    const std::string failure = command_failure(job, done);
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

}  // namespace stdchk::tools
