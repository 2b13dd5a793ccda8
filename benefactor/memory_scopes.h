#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What the kernel says about the memory that this process shares with others.
namespace stdchk::benefactor {

/// Where the kernel tells; a test gives folders of its own.
struct MachineFiles {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

/// A MemoryScope is a set of processes that share an amount of memory, this one among them: the
/// machine, or a control group with a limit.
struct MemoryScope {
  std::string name;  ///< "this machine", "the control group /job"
  bool is_machine = false;
  std::uint64_t total_bytes = 0;
  /// May still be taken before the kernel slows down who asks for more (memory.high), or ends
  /// somebody. Cached files count as free: the kernel drops them first.
  std::uint64_t available_bytes = 0;
  /// May still be taken before the OOM killer comes.
  std::uint64_t before_oom_bytes = 0;
  std::string pressure_file;  ///< its PSI, there or not
  /// Time in which some task waited for memory, in all; nothing: the kernel does not tell (PSI).
  std::optional<std::uint64_t> stalled_us;
  /// How often its own limit was reached with nothing left to reclaim (memory.events.local).
  std::uint64_t oom_count = 0;
};

/// The machine, and each control group with a limit (version 1 or 2) that this process is in, from
/// the innermost one outwards. What cannot be read is left out.
std::vector<MemoryScope> read_memory_scopes(const MachineFiles& files = {});

}  // namespace stdchk::benefactor
