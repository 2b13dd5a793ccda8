#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/problem.h"

namespace stdchk::container {

/// A ProgramCall is one run of a program of the system, such as ip(8), nft(8), tar(1) or criu(8).
struct ProgramCall {
  std::vector<std::string> words;  ///< the program's name or path, then its arguments
  std::string input;               ///< its standard input
  std::string net_namespace;       ///< path of the network namespace to run in; empty: this one
  Duration deadline = std::chrono::seconds(10);
  const std::atomic<bool>* cancelled = nullptr;  ///< becomes true: the program is killed
  /// Called with the program's process id every 2 ms while it runs.
  std::function<void(pid_t)> watch;
};

/// Runs a program to its end, and returns its standard output. At the deadline its process group is
/// killed. Any thread. The error holds the last lines of its standard error.
Outcome<std::string> run_program(const ProgramCall& call);

/// The errno's text after what failed: "mount /x: No such device".
std::string errno_text(const std::string& what);

}  // namespace stdchk::container
