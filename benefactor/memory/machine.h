#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "benefactor/memory/memory_scopes.h"
#include "benefactor/memory/pressure.h"
#include "core/base/problem.h"

/// Checks what this machine can lend, before it is taken.
namespace stdchk::benefactor {

struct HugePages {
  std::uint64_t page_bytes = 0;  ///< 0: the kernel has no huge pages
  std::uint64_t total = 0;
  std::uint64_t free = 0;  ///< free and not reserved by another process
};

/// Always left to the rest of the machine.
inline constexpr std::uint64_t kMemoryKeptFree = 128ull << 20;

/// Refuses with kNoMemory when `bytes` of memory would cause paging or wake the OOM killer. It uses
/// MemAvailable and the limits (version 1 or 2) of each control group that this process is in. With
/// `pressure`, it also refuses when less than twice the reserve would be left.
Outcome<void> check_memory(std::uint64_t bytes, const MachineFiles& files = {},
                           const std::optional<PressureLimits>& pressure = {});

/// Makes the OOM killer prefer this process (oom_score_adj, proc(5)), which needs no privilege.
/// Returns the previous score; nothing if that was as high already, or cannot be changed.
std::optional<int> raise_oom_score(int score, const MachineFiles& files = {});
void restore_oom_score(int score, const MachineFiles& files = {});

HugePages huge_pages(const MachineFiles& files = {});

/// Refuses with kNoSpace when the file system of `directory` has no room for `bytes`.
Outcome<void> check_disk(std::uint64_t bytes, const std::string& directory);

/// Refuses with kMemlock when `bytes` cannot be pinned under `limit`; `privileged` processes
/// (CAP_IPC_LOCK) have no limit.
Outcome<void> check_memlock(std::uint64_t bytes, std::uint64_t limit, bool privileged);
/// Like the other check_memlock(), with this process's limit and privilege.
Outcome<void> check_memlock(std::uint64_t bytes);

}  // namespace stdchk::benefactor
