#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace stdchk {

/// A ProcessId names one life of one process, because the system reuses pids.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  ///< field 22 of /proc/PID/stat: clock ticks since the boot
  bool operator==(const ProcessId&) const = default;
};

ProcessId this_process();
/// Returns false for a zombie, and for a newer process with the same pid.
bool is_alive(const ProcessId& process);

/// Identifies this boot of this machine; processes of earlier boots have ended.
std::string boot_id();

/// A ProcessState is a part of /proc/PID/stat (proc_pid_stat(5)).
struct ProcessState {
  char state = 'X';  ///< X: no such process
  pid_t parent = 0;
  std::uint64_t flags = 0;  ///< PF_* of the kernel's include/linux/sched.h
  std::uint64_t start_ticks = 0;
  /// In the form of waitpid(2). The kernel shows 0 to users who may not trace the process.
  std::uint64_t exit_code = 0;

  /// Returns true while the process ends, and afterwards: the kernel closes its descriptors.
  bool is_ending() const { return state == 'X' || (flags & 0x4) != 0; }  // PF_EXITING
};
/// Returns the state X for a text that has not all fields.
ProcessState parse_process_state(std::string_view text);
ProcessState read_process_state(pid_t pid);

}  // namespace stdchk
