#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

#include "core/base/descriptor.h"

namespace stdchk::container {

/// A FaultCopies holds copies of the userfaultfd(2) descriptors of another process, which gives
/// processes their memory. When that process is killed, the kernel would give zeros for absent
/// pages. While the copies are open, threads that touch such a page wait instead.
///
/// Owns: the copies, and a pidfd of the process.
/// Threads: one at a time.
/// Limits: a descriptor that the other process gets between two calls of update() has no copy yet.
class FaultCopies {
 public:
  explicit FaultCopies(pid_t process) : process_(process) {}

  /// Copies the descriptors that the process has, a child of this process. Drops copies of closed
  /// descriptors, unless the process is ending. Must not be called after the child was reaped: its
  /// pid may then name another process.
  void update();

  std::size_t size() const { return copies_.size(); }

 private:
  struct Copy {
    int number;  ///< of the descriptor in the process
    Descriptor own;
  };
  const pid_t process_;
  Descriptor pidfd_;  ///< none before the first update()
  std::vector<Copy> copies_;
};

}  // namespace stdchk::container
