#pragma once

#include <sys/types.h>

#include <string>

#include "container/description/description.h"
#include "core/base/descriptor.h"

namespace stdchk::container {

/// A Sweeper is a process that outlives the node's daemon, even a killed daemon. Then it removes
/// the objects that the kernel would keep: the devices of the job's network, and the work
/// directory.
///
/// Owns: the process, which ends when the last process closes this object's pipe.
class Sweeper {
 public:
  /// Forks. The daemon calls it before it makes its own namespaces. `tag` and `work` are the
  /// daemon's options.
  static Outcome<Sweeper> start(const std::string& tag, const std::string& work);

  /// Tells the sweeper which network to remove. Any process that has inherited the object may call
  /// it.
  void will_need(const NetworkDescription& network) const;
  /// Closes this process's end and waits until the sweeper has ended.
  void finish();

 private:
  Sweeper(pid_t pid, Descriptor pipe) : pid_(pid), pipe_(std::move(pipe)) {}

  pid_t pid_;
  Descriptor pipe_;
};

}  // namespace stdchk::container
