#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// A ProcessId names one life of one process: a pid alone is used again by others.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  ///< field 22 of /proc/PID/stat: clock ticks since the boot
  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();
/// False also for a zombie, and for another process that has the pid now.
bool is_alive(const ProcessId& process);

/// Starts a program in a session of its own, without terminal; its output is appended to
/// `log_path`. `arguments` are without the program's name. `input`, a descriptor, is its standard
/// input; -1: that is empty.
Outcome<ProcessId> start_detached(const std::string& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& log_path, int input = -1);

/// A process of this user that was found, not started.
struct FoundProcess {
  ProcessId id;
  pid_t parent = 0;
  std::vector<std::string> words;  ///< its command line
};
/// All processes of this user whose program's name begins with "stdchk", and that see the same
/// files. A program that runs with other rights than its user's is left out.
std::vector<FoundProcess> own_processes();
/// When a process began: "2026-01-31 12:00:00"; empty: it is gone.
std::string began_text(const ProcessId& process);

enum class End { kWasGone, kEnded, kKilled, kStillThere };
/// SIGTERM, then SIGKILL when it is still there after `grace`. Never signals another process.
End end_process(const ProcessId& process, Duration grace, int signal = SIGTERM);

struct CommandOutput {
  int status = 0;  ///< exit status; 128 + signal when killed
  std::string out;
  std::string err;
};
/// Runs a command with `input` as standard input to its end. At `deadline`, or when `enough`, asked
/// again and again, says so, it is ended with all in its session's first process group.
Outcome<CommandOutput> run_command(const std::vector<std::string>& command,
                                   const std::string& input, Duration deadline,
                                   const std::function<bool()>& enough = {});

/// The path of a program of stdchk: in $STDCHK_BIN, beside the program `invoked_as`, or in PATH.
Outcome<std::string> find_program(const std::string& name, const std::string& invoked_as);

/// `text` as one word of a POSIX shell.
std::string shell_word(const std::string& text);

/// Names this boot of this machine; a process of an earlier one is gone.
std::string boot_id();

/// From now on SIGTERM, SIGINT and SIGHUP do nothing but make asked_to_end() true.
void notice_end_signals();
bool asked_to_end();

void sleep_for(Duration duration);
double seconds_since(std::chrono::steady_clock::time_point began);

}  // namespace stdchk::tools
