#pragma once

#include <sys/types.h>

#include <string>

#include "container/description/description.h"
#include "core/base/clock.h"

namespace stdchk::container {

/// A ControlGroup limits the memory, processors and processes of a container. It uses version 2 of
/// cgroups(7), or the controllers memory, cpu and pids of version 1.
///
/// Owns: one directory for each controller below /sys/fs/cgroup, until remove().
/// Errors: a limit that this host cannot set is an error, because a container without it could take
///   what belongs to others.
/// Not: in version 2 the groups are below the root. A batch system's limits of the daemon do not
///   hold for its containers.
class ControlGroup {
 public:
  /// `tag` is unique on this host for each node.
  ControlGroup(const std::string& tag, std::uint32_t box);
  /// Makes the group. Without any limit nothing is made.
  Outcome<void> make(const BoxLimits& limits);
  /// Moves all processes of the container below `init` into the group.
  Outcome<void> add(pid_t init) const;
  /// The container's processes must have got SIGKILL. Waits until the kernel has ended them, for
  /// kRemovalMax at most. Logs which processes keep the group after that.
  void remove();

 private:
  static constexpr Duration kRemovalMax = std::chrono::seconds(5);

  const std::string name_;
  bool made_ = false;
};

/// Removes the groups that a killed node has left. Waits as remove_group() does, for `patience` in
/// all. The kernel closes the files of a killed process before it ends the processes of its
/// namespace. So who sees the end of a node's pipe may come before the end of its containers.
void remove_control_groups(const std::string& tag, Duration patience);

/// Removes the group at `path`. The kernel refuses that while a process of the group has not ended,
/// for instance in an uninterruptible wait. Tries again until `until`; the Problem then names the
/// processes. An absent group is no error.
Outcome<void> remove_group(const std::string& path, std::chrono::steady_clock::time_point until);

}  // namespace stdchk::container
