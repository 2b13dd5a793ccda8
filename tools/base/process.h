#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/process_id.h"
#include "tools/base/problem.h"

namespace stdchk {
class Reactor;
}

namespace stdchk::tools {

/// Starts a program in its own session, without terminal. Appends its output to `log_path`.
/// `arguments` lack the program's name. `input` is a descriptor for its standard input; -1: empty
/// input.
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
/// files. Skips programs that run with other rights than their user's.
std::vector<FoundProcess> own_processes();
/// When a process began, such as "2026-01-31 12:00:00"; empty: it has ended.
std::string began_text(const ProcessId& process);

enum class End { kWasGone, kEnded, kKilled, kStillThere };
/// Sends SIGTERM, and SIGKILL if the process exists after `grace`. Never signals another process.
End end_process(const ProcessId& process, Duration grace, int signal = SIGTERM);

struct CommandOutput {
  int status = 0;  ///< exit status; 128 + signal when killed
  std::string out;
  std::string err;
};
/// Runs a command with `input` as standard input to its end. At `deadline`, or once `enough`
/// (called repeatedly) returns true, ends it with all of its session's first process group.
Outcome<CommandOutput> run_command(const std::vector<std::string>& command,
                                   const std::string& input, Duration deadline,
                                   const std::function<bool()>& enough = {});

/// The path of a program of stdchk: in $STDCHK_BIN, beside the program `invoked_as`, or in PATH.
Outcome<std::string> find_program(const std::string& name, const std::string& invoked_as);

/// `text` as one word of a POSIX shell.
std::string shell_word(const std::string& text);
/// The words as a POSIX shell reads them, with spaces between them.
std::string shell_words(std::span<const std::string> words);

/// From now on SIGTERM, SIGINT and SIGHUP only make asked_to_end() true. A SIGHUP that this process
/// ignores stays ignored: nohup(1).
void notice_end_signals();
/// The same, and each of these signals stops `reactor`, which must live until the process ends.
void stop_on_end_signals(Reactor& reactor);
bool asked_to_end();

/// The signals that notice_end_signals() has noticed.
struct EndSignals {
  int terms = 0;       ///< how often SIGTERM came
  int interrupts = 0;  ///< SIGINT: Ctrl-C
  int hangups = 0;     ///< SIGHUP; one lost terminal may send several
  int first = 0;       ///< the number of the first signal; 0: none came
  int count() const { return terms + interrupts + hangups; }
};
EndSignals end_signals();

void sleep_for(Duration duration);
double seconds_since(std::chrono::steady_clock::time_point began);

}  // namespace stdchk::tools
