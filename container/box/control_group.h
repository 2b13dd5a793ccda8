#pragma once

#include <sys/types.h>

#include <string>

#include "container/description/description.h"

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
  /// The processes must have ended.
  void remove();

 private:
  const std::string name_;
  bool made_ = false;
};

/// Removes the groups that a killed node has left.
void remove_control_groups(const std::string& tag);

}  // namespace stdchk::container
