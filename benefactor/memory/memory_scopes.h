#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The kernel's figures about the memory that this process shares with others.
namespace stdchk::benefactor {

/// The folders of the kernel's files; tests pass their own folders.
struct MachineFiles {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

/// A MemoryScope is a set of processes, including this one, that share an amount of memory: the
/// machine, or a control group with a limit.
struct MemoryScope {
  std::string name;  ///< "this machine", "the control group /job"
  bool is_machine = false;
  std::uint64_t total_bytes = 0;
  /// Bytes that may be taken before the kernel slows processes down (memory.high) or ends one.
  /// Cached files count as free: the kernel drops them first.
  std::uint64_t available_bytes = 0;
  /// Bytes that may be taken before the OOM killer acts.
  std::uint64_t before_oom_bytes = 0;
  std::string pressure_file;  ///< its PSI file, which may not exist
  /// Total microseconds in which some task waited for memory. Empty: the kernel has no PSI.
  std::optional<std::uint64_t> stalled_us;
  /// How often the scope reached its own limit with nothing left to reclaim (memory.events.local).
  std::uint64_t oom_count = 0;
};

/// Returns the machine, and each control group with a limit (version 1 or 2) that this process is
/// in, from the innermost outwards. Leaves out what cannot be read.
std::vector<MemoryScope> read_memory_scopes(const MachineFiles& files = {});

}  // namespace stdchk::benefactor
