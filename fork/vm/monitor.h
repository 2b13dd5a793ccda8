#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/clock.h"
#include "core/base/descriptor.h"
#include "core/base/problem.h"

namespace stdchk::fork::vm {

/// A Monitor is a connection to a machine's QMP server (QEMU Machine Protocol).
///
/// Threads: one. Calls wait, each at most its deadline. Errors: a sentence; afterwards only a new
/// connection helps.
class Monitor {
 public:
  /// Waits until the server is there. `process`: a pidfd; its end ends the wait.
  static Outcome<Monitor> connect(const std::string& path, int process, Duration longest);

  /// Runs a command and returns what QEMU calls "return". Events that come meanwhile are dropped.
  Outcome<nlohmann::json> execute(const std::string& command, const nlohmann::json& arguments,
                                  Duration longest);

 private:
  explicit Monitor(Descriptor socket) : socket_(std::move(socket)) {}
  Outcome<nlohmann::json> read_object(Time until);

  Descriptor socket_;
  std::string buffer_;
};

/// Connects to a Unix stream socket. -1 with errno.
int connect_unix(const std::string& path);

}  // namespace stdchk::fork::vm
