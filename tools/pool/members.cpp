#include "tools/pool/members.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "core/files/log_end.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

// Shell functions for another host. Start time and boot distinguish a process from a later process
// with the same number: see ProcessId.
constexpr const char* kRemoteFunctions = R"sh(
start_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
state_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1; }
alive() { [ "$(start_of "$1")" = "$2" ] && [ "$(state_of "$1")" != Z ]; }
boot() { cat /proc/sys/kernel/random/boot_id; }
# The processes of this user that were given a key of the directory $1: its file is among their words.
told_of() {
  for d in /proc/[0-9]*; do
    [ -O "$d" ] || continue
    tr '\0' '\n' <"$d/cmdline" 2>/dev/null | while IFS= read -r word; do
      case $word in "$1"/secret | "$1"/*.member) exit 7 ;; esac
    done
    [ $? -ne 7 ] || echo "${d#/proc/}"
  done
}
)sh";

// Waits for NAME.ready of each started daemon in $pids ("NAME:PID:START ..."), for at most $longest
// tenths of a second.
constexpr const char* kRemoteWait = R"sh(
for item in $pids; do
  name=${item%%:*}; rest=${item#*:}; p=${rest%%:*}; s=${rest#*:}; t=0
  while [ ! -e "$name.ready" ]; do
    alive "$p" "$s" || { echo "failed $name $(tail -n 1 "$name.log")"; exit 1; }
    t=$((t + 1)); [ $t -gt $longest ] && { echo "failed $name was not ready in time"; exit 1; }
    sleep 0.1
  done
  [ ! -s "$name.metrics" ] || echo "metrics $name $(cat "$name.metrics")"
done
echo ready
)sh";

std::string start_script(const std::string& directory, const PrivateFiles& files,
                         const std::vector<Job>& jobs, Duration longest) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() / 100;
  std::string script = kRemoteFunctions;
  // In /tmp another user may have made the folder first.
  const std::filesystem::path pools = std::filesystem::path(directory).parent_path().parent_path();
  script += fmt::format(
      "umask 077\nmkdir {1} 2>/dev/null\n"
      "[ ! -L {1} ] && [ -d {1} ] && [ -O {1} ] && chmod 700 {1} && mkdir -p {0} && cd {0} ||\n"
      "  {{ echo 'failed' {1} 'must be a directory of your own; remove what is there'; exit 1; "
      "}}\n",
      shell_word(directory), shell_word(pools));
  // The text goes by standard input to a shell with a built-in printf, so no command line shows it.
  for (const auto& [name, text] : files) {
    script += fmt::format("rm -f {0}; printf '%s' {1} > {0} || exit 1\n", name, shell_word(text));
  }
  script += "echo boot $(boot)\n";
  for (const auto& job : jobs) {
    if (!job.mount.empty()) script += fmt::format("mkdir -p {}\n", shell_word(job.mount));
    script +=
        fmt::format("b={0}; [ -x \"$b\" ] || b={1}\nrm -f {2} {3}\n", shell_word(job.program),
                    shell_word(std::filesystem::path(job.program).filename()),
                    shell_word(job.ready_file), shell_word(metrics_file(directory, job.name)));
    // Outside an interactive shell a background job leads no process group, so setsid(1) does not
    // fork and $! stays the daemon's own number.
    script += fmt::format(
        "setsid \"$b\" {0} </dev/null >>{1}.log 2>&1 &\np=$!; s=$(start_of $p)\n"
        "echo started {1} $p $s\n",
        shell_words(job.arguments), job.name);
    script += fmt::format("pids=\"$pids {}:$p:$s\"\n", job.name);
  }
  script += fmt::format("longest={}\n", tenths);
  return script + kRemoteWait;
}

/// On SIGTERM a benefactor would first hand over its chunks. Here the whole pool ends, so it gets
/// SIGINT.
int end_signal(const Member& member) { return member.role == "benefactor" ? SIGINT : SIGTERM; }

std::string end_script(const std::string& directory, const std::vector<const Member*>& members,
                       const std::vector<pid_t>& staying, Duration grace, bool last) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count() / 100;
  std::string script = kRemoteFunctions;
  for (const Member* member : members) {
    script += fmt::format("if [ \"$(boot)\" = {0} ]; then\nif alive {1} {2}; then kill -{3} {1}\n",
                          shell_word(member->boot_id), member->process.pid,
                          member->process.start_ticks, end_signal(*member));
    script += fmt::format("else echo gone {}; keep=1; fi; fi\n", member->process.pid);
  }
  for (const Member* member : members) {
    script += fmt::format(
        "t=0; while [ \"$(boot)\" = {0} ] && alive {1} {2}; do t=$((t + 1))\n"
        "if [ $t -eq {3} ]; then echo killed {1}; keep=1; kill -KILL {1}; fi\n"
        "if [ $t -gt {4} ]; then echo stays {1}; keep=1; break; fi\nsleep 0.1; done\n",
        shell_word(member->boot_id), member->process.pid, member->process.start_ticks, tenths,
        tenths + 50);
    // The daemon has unmounted its mount. A failed unmount leaves a dead mount; a mount that
    // answers belongs to another pool.
    if (!member->mount.empty()) {
      script += fmt::format(
          "stat -f {0} >/dev/null 2>&1 || fusermount3 -u -z {0} 2>/dev/null || umount -l {0} "
          "2>/dev/null\n",
          shell_word(member->mount));
    }
  }
  // Members of other roles may still need the directory. The last role removes it, except the logs
  // of failed members.
  if (last) {
    std::string kept;
    for (const pid_t pid : staying) kept += fmt::format("{} ", pid);
    script += fmt::format(
        "for p in $(told_of {0}); do case ' {1} ' in *\" $p \"*) ;; *) kill -KILL $p;; esac; done\n"
        "cd /; rm -f {0}/secret {0}/key {0}/*.member {0}/*.ready {0}/*.metrics; [ \"$keep\" ] || "
        "rm -rf {0}\n",
        shell_word(directory), kept);
  }
  script += "echo done\n";
  return script;
}

std::vector<std::string> remote_command(const std::vector<std::string>& shell,
                                        const std::string& host) {
  std::vector<std::string> command = shell;
  command.push_back(host);
  command.emplace_back("sh");
  command.emplace_back("-s");
  return command;
}

void end_remote(const PoolRecord& pool, const HostFolder& place,
                const std::vector<const Member*>& members, Duration grace, bool last,
                Ended& ended) {
  const std::string& host = place.host;
  std::vector<pid_t> staying;  // a standby ends after the benefactors
  for (const Member& member : pool.members) {
    if (member.host == host && std::ranges::find(members, &member) == members.end()) {
      staying.push_back(member.process.pid);
    }
  }
  auto done = run_command(remote_command(pool.remote_shell, host),
                          end_script(place.directory, members, staying, grace, last), grace + 30s);
  if (!done || done->out.find("done") == std::string::npos) {
    ended.troubles.push_back(fmt::format("{} cannot be reached ({}); end there by hand: {}", host,
                                         done ? done->err : done.error().text, [&] {
                                           std::string pids;
                                           for (const Member* member : members)
                                             pids += fmt::format(" {}", member->process.pid);
                                           return "kill" + pids;
                                         }()));
    return;
  }
  std::istringstream lines(done->out);
  for (std::string word, pid; lines >> word >> pid;) {
    if (word == "gone") {
      ended.crashed.push_back(fmt::format("pid {} on {} had ended before; its log is in {} there",
                                          pid, host, place.directory));
    } else if (word == "killed") {
      ended.crashed.push_back(fmt::format("pid {} on {} had to be killed", pid, host));
    } else if (word == "stays") {
      ended.troubles.push_back(fmt::format("pid {} on {} does not end", pid, host));
    }
  }
}

void end_local(const std::vector<const Member*>& members, Duration grace, Ended& ended) {
  std::vector<End> ends(members.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i]->boot_id != boot_id()) {
      ends[i] = End::kWasGone;
      continue;
    }
    threads.emplace_back(
        [&, i] { ends[i] = end_process(members[i]->process, grace, end_signal(*members[i])); });
  }
  for (auto& thread : threads) thread.join();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = *members[i];
    if (ends[i] == End::kWasGone) {
      if (ended.unmounted.contains(member.process.pid)) continue;
      ended.crashed.push_back(fmt::format("the {} with pid {} had ended before; it said last: {}",
                                          member.role, member.process.pid, last_words(member.log)));
    } else if (ends[i] == End::kKilled) {
      ended.crashed.push_back(
          fmt::format("the {} with pid {} did not end and was killed; it said last: {}",
                      member.role, member.process.pid, last_words(member.log)));
    } else if (ends[i] == End::kStillThere) {
      ended.troubles.push_back(fmt::format(
          "the {} with pid {} does not end, not even by SIGKILL; it hangs in the kernel",
          member.role, member.process.pid));
    }
  }
}

constexpr std::size_t kLogEndBytes = 65536;
constexpr std::size_t kLastWordsBytesMax = 1000;

struct LogLine {
  std::string level;  ///< empty: not one of our log lines
  std::string text;
};

/// "time level program: text".
LogLine split(const std::string& line) {
  std::istringstream words(line);
  std::string time;
  LogLine out;
  std::string program;
  if (words >> time >> out.level >> program && time.size() > 20 && program.ends_with(":")) {
    std::getline(words, out.text);
    out.text.erase(0, 1);
    return out;
  }
  return {{}, line};
}

}  // namespace

void Job::change(std::string_view flag, const std::string& value) {
  const auto found = std::ranges::find(arguments, flag);
  if (found != arguments.end() && found + 1 != arguments.end()) *(found + 1) = value;
}

Outcome<Member> start_local(const Job& job, const std::string& directory) {
  Member member;
  member.role = job.role;
  member.boot_id = boot_id();
  member.log = directory + "/" + job.name + ".log";
  member.mount = job.mount;
  member.directory = directory;
  ::unlink(job.ready_file.c_str());
  ::unlink(metrics_file(directory, job.name).c_str());
  auto process = start_detached(job.program, job.arguments, member.log, job.input);
  if (!process) return problem(process.error());
  member.process = *process;
  return member;
}

Outcome<void> wait_ready(const Job& job, Member& member, Duration longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  // Many may wait on one machine for processes that need its processors. The pause grows by a
  // quarter, not by a BackOff's double: the start then takes at most a quarter longer.
  Duration pause = 5ms;
  while (::access(job.ready_file.c_str(), F_OK) != 0) {
    if (!is_alive(member)) {
      return problem("the {} ended while it started: {}", job.role, last_words(member.log));
    }
    if (std::chrono::steady_clock::now() > until) {
      return problem("the {} was not usable within {} s; its last words: {}", job.role,
                     std::chrono::duration_cast<std::chrono::seconds>(longest).count(),
                     last_words(member.log));
    }
    sleep_for(pause);
    pause = std::min<Duration>(pause * 5 / 4, 100ms);
  }
  std::ifstream file(metrics_file(member.directory, job.name));
  std::getline(file, member.metrics);
  if (job.role == "mount") member.mount_id = recorded_mount_id(member.directory);
  return {};
}

std::uint64_t recorded_mount_id(const std::string& directory) {
  std::ifstream file(directory + "/mount.ready");
  pid_t pid = 0;
  std::uint64_t id = 0;
  return file >> pid >> id ? id : 0;
}

Duration ready_longest(std::uint64_t memory_bytes) {
  // Benefactors pre-fault their memory, at 2.6 GB/s on the slowest host seen. The limit assumes a
  // quarter of this rate.
  return 30s + std::chrono::milliseconds(memory_bytes / (650 * 1000));
}

StartReport read_start_report(const std::string& text, const std::vector<Job>& jobs) {
  StartReport report;
  std::map<std::string, std::string> metrics;  ///< by name
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what;
    std::string name;
    words >> what;
    if (what == "boot") words >> report.boot;
    if (what == "ready") report.ready = true;
    if (what == "failed" && line.size() > 7) report.failure = line.substr(7);
    if (what == "metrics") words >> name >> metrics[name];
    if (what != "started") continue;
    Member member;
    words >> name >> member.process.pid >> member.process.start_ticks;
    const auto job = std::ranges::find(jobs, name, &Job::name);
    // Never take a foreign process, or a process group, for a member.
    if (job == jobs.end() || member.process.pid <= 1) continue;
    member.role = job->role;
    member.mount = job->mount;
    member.log = name + ".log";
    report.started.push_back(std::move(member));
  }
  for (Member& member : report.started) {
    member.boot_id = report.boot;
    member.metrics = metrics[std::filesystem::path(member.log).stem()];
  }
  return report;
}

Outcome<void> start_remote(const std::vector<std::string>& remote_shell, const std::string& host,
                           const std::string& directory, const PrivateFiles& files,
                           const std::vector<Job>& jobs, Duration longest,
                           std::vector<Member>& members) {
  auto done = run_command(remote_command(remote_shell, host),
                          start_script(directory, files, jobs, longest), longest + 30s);
  if (!done) return problem("{}: {}", host, done.error().text);
  StartReport report = read_start_report(done->out, jobs);
  for (Member& member : report.started) {
    member.host = host;
    member.directory = directory;
    member.log = fmt::format("{}/{}", directory, member.log);
    members.push_back(std::move(member));
  }
  if (report.ready) return {};
  if (!report.failure.empty()) {
    return problem("on {}: {} (logs there: {})", host, report.failure, directory);
  }
  std::string why = done->err.substr(0, done->err.find_last_not_of(" \r\n") + 1);
  if (why.empty()) why = fmt::format("exit status {}", done->status);
  // The remote shell itself failed, before it ran the script.
  if (report.boot.empty()) {
    std::string command;
    for (const std::string& word : remote_shell) command += word + " ";
    why += fmt::format("; this must work without a question: {}{} true", command, host);
  }
  return problem("{} did not start the daemons on {}: {}", remote_shell.front(), host, why);
}

void end_members(const PoolRecord& pool, const std::string& role, Duration grace, Ended& ended) {
  const bool is_last = role == "benefactor";
  std::map<std::string, std::vector<const Member*>> by_host;
  std::map<std::string, std::string> directories;
  if (is_last) {
    for (const HostFolder& place : pool.host_folders) {
      by_host[place.host];
      directories[place.host] = place.directory;
    }
  }
  for (const auto& member : pool.members) {
    if (member.role != role) continue;
    by_host[member.host].push_back(&member);
    directories[member.host] = member.directory;
  }
  for (const auto& [host, members] : by_host) {
    if (host.empty()) {
      end_local(members, grace, ended);
    } else {
      end_remote(pool, {host, directories[host]}, members, grace, is_last, ended);
    }
  }
}

std::string last_words(const std::string& log) {
  std::istringstream lines(end_of_log(log, kLogEndBytes));
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  }
  if (last.empty()) return "it said nothing";
  std::string words = split(last).text;
  if (words.size() > kLastWordsBytesMax) {
    words.resize(kLastWordsBytesMax);
    words += " ...";
  }
  std::ranges::replace_if(
      words, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return words;
}

std::vector<std::string> warnings(const std::string& log, std::uintmax_t from) {
  std::ifstream file(log);
  file.seekg(static_cast<std::streamoff>(from));
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) {
    const LogLine said = split(line);
    if (said.level == "warning" || said.level == "error") out.push_back(said.text);
  }
  return out;
}

}  // namespace stdchk::tools
