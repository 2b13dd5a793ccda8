#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "container/program/program.h"
#include "core/base/descriptor.h"

namespace stdchk::container {

/// A NodeProcess is a node's daemon, or the remote shell that has started it.
///
/// Owns: the process; the destructor ends it by SIGTERM, and by SIGKILL after 5 s.
class NodeProcess {
 public:
  /// Starts `command`, and hands it `key` as standard input. Its errors go to the end of `log`.
  static Outcome<NodeProcess> start(const std::vector<std::string>& command, const std::string& key,
                                    const std::string& log);
  NodeProcess(NodeProcess&&) noexcept;
  NodeProcess& operator=(NodeProcess&&) = delete;
  ~NodeProcess();

  /// Waits for the line "ready ADDRESS", and returns the address.
  Outcome<std::string> wait_ready(Duration deadline);
  pid_t pid() const { return pid_; }

 private:
  NodeProcess(pid_t pid, Descriptor out, std::string log)
      : pid_(pid), out_(std::move(out)), log_(std::move(log)) {}

  pid_t pid_;
  Descriptor out_;
  std::string log_;
};

}  // namespace stdchk::container
