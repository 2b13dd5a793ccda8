#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>

#include "container/program/program.h"

/// Saving and loading the processes of a container by the program criu(8).
namespace stdchk::container {

/// A Criu runs the program criu(8).
///
/// Errors: the sentence ends with the last errors of CRIU's own log.
/// Limits: CRIU 4.2 or later on Linux 6.16 and later, where earlier versions cannot save TCP
///   sockets. Not: InfiniBand devices, which no version saves.
class Criu {
 public:
  explicit Criu(std::string program) : program_(std::move(program)) {}

  /// The version, such as "4.2.1". An error when the program is absent or too old for this kernel.
  Outcome<std::string> version() const;
  /// Writes the images of the process tree below `init` into `folder`. The caller has stopped all
  /// processes; they stay stopped.
  Outcome<void> dump(pid_t init, const std::string& folder, const std::string& net_namespace,
                     Duration deadline) const;
  /// Makes the process tree of `folder` again, stopped. `root` is the mount point of the
  /// container's file system. Returns process 1, which becomes a child of this process.
  /// `on_demand`: most of the memory stays in the images; serve_memory() gives it to the processes.
  Outcome<pid_t> restore(const std::string& folder, const std::string& root,
                         const std::string& net_namespace, Duration deadline,
                         bool on_demand = false) const;
  /// Gives processes that restore() makes from `folder` their memory: a page when a process touches
  /// the page, and all others meanwhile. Returns when all memory is loaded. Must run before
  /// restore() begins: the file memory_socket() of the folder then exists. Without it, absent pages
  /// read as zeros, so the caller ends the processes when this fails.
  /// `watch` is called with the program's process id every few milliseconds.
  Outcome<void> serve_memory(const std::string& folder, Duration deadline,
                             const std::atomic<bool>& cancelled,
                             const std::function<void(pid_t)>& watch) const;
  static std::string memory_socket(const std::string& folder);

 private:
  const std::string program_;
};

/// "4.2.1" of `criu --version`; empty: the text has no version.
std::string criu_version_of(const std::string& text);
/// Whether a CRIU of that version saves TCP sockets on a kernel of that release ("6.18.44").
bool criu_is_new_enough(const std::string& version, const std::string& kernel);
/// The last error lines of a log, at most three, without time stamps.
std::string criu_errors(const std::string& log);

}  // namespace stdchk::container
