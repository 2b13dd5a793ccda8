#pragma once

#include <setjmp.h>
#include <signal.h>

#include <cstdint>

#include "fork/library/memory_ranges.h"
#include "fork/library/open_files.h"
#include "fork/process/local_protocol.h"

namespace stdchk::fork {

/// A FrozenCopy is a copy-on-write copy of the calling process, made by fork(2). It forks each
/// clone into a sandbox of the daemon. The parent continues as soon as the copy exists.
///
/// Owns: nothing of the process; it lies in memory that freeze() maps and the caller unmaps.
/// Threads: the thread that calls sf_clone; other threads of the process are not in the copy.
struct FrozenCopy {
  // Input: the parent sets these members.
  std::uint64_t ticket = 0;
  std::uint64_t token[2] = {0, 0};
  sigset_t mask{};  ///< signals that the program has blocked
  struct sigaction on_child {};
  jmp_buf back{};  ///< where a clone continues
  // Output: the copy and the clones set these members.
  int fork_errno = 0;
  int id = 0;
  OpenFiles files;
  // For a copy on another host. Its memory is empty at first, except the range with this object and
  // its stack, so these members hold all that the copy needs.
  std::uint64_t room_begin = 0;  ///< begin of that range
  std::uint64_t room_end = 0;
  char daemon_path[108] = {};
  std::uint32_t range_count = 0;
  MemoryRange ranges[local::kRangesMax];
};

/// In the frozen copy, and in its copy on another host: makes the clones that the daemon at
/// `daemon` asks for, then ends.
[[noreturn]] void serve(FrozenCopy* frozen, int daemon);

/// Makes the copy. The caller has set `frozen->back` by setjmp. Returns 0 or an errno in the
/// parent. A clone does not return: it continues at `back`, with `frozen->id`, and with all signals
/// blocked.
int freeze(FrozenCopy* frozen, char* stack, std::uint64_t stack_bytes);

}  // namespace stdchk::fork
