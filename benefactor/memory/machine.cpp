#include "benefactor/memory/machine.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "benefactor/memory/kernel_text.h"
#include "core/base/log.h"
#include "core/base/units.h"

namespace stdchk::benefactor {
namespace {

constexpr const char* kWhere = "benefactor.memory";

bool has_capability(const MachineFiles& files, unsigned bit) {
  std::ifstream status(files.proc + "/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> bit & 1) != 0;
  }
  return false;
}

}  // namespace

Outcome<void> check_memory(std::uint64_t bytes, const MachineFiles& files,
                           const std::optional<PressureLimits>& pressure) {
  for (const MemoryScope& scope : read_memory_scopes(files)) {
    // Twice the reserve: otherwise a benefactor that has just taken memory
    // might have to leave at once.
    const std::uint64_t reserve = pressure ? 2 * reserve_of(scope.total_bytes, *pressure) : 0;
    const std::uint64_t kept = std::max(reserve, scope.is_machine ? kMemoryKeptFree : 0);
    const std::uint64_t lendable = scope.available_bytes - std::min(scope.available_bytes, kept);
    if (bytes <= lendable) continue;
    return problem(Code::kNoMemory, kWhere, 0,
                   fmt::format("{} are asked for, but {} can lend only {} ({} are available, {} "
                               "stay free for others); lend less (--memory), {}.",
                               format_bytes(bytes), scope.name, format_bytes(lendable),
                               format_bytes(scope.available_bytes), format_bytes(kept),
                               scope.is_machine ? "or end what uses the memory"
                                                : "or raise the job's or container's limit"));
  }
  return {};
}

HugePages huge_pages(const MachineFiles& files) {
  const std::string meminfo = files.proc + "/meminfo";
  HugePages pages;
  pages.page_bytes = keyed_number(meminfo, "Hugepagesize:").value_or(0) * 1024;
  pages.total = keyed_number(meminfo, "HugePages_Total:").value_or(0);
  const auto free = keyed_number(meminfo, "HugePages_Free:").value_or(0);
  pages.free = free - std::min(free, keyed_number(meminfo, "HugePages_Rsvd:").value_or(0));
  return pages;
}

std::optional<int> raise_oom_score(int score, const MachineFiles& files) {
  std::ifstream file(files.proc + "/self/oom_score_adj");
  int before = 0;
  if (!(file >> before) || before >= score) return std::nullopt;
  restore_oom_score(score, files);
  return before;
}

void restore_oom_score(int score, const MachineFiles& files) {
  std::ofstream file(files.proc + "/self/oom_score_adj");
  file << score << std::flush;
  if (!file) log::warning("oom_score_adj cannot be set to {}", score);
}

Outcome<void> check_disk(std::uint64_t bytes, const std::string& directory) {
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) {
    const int error = errno;
    return problem(Code::kInvalidArgument, "benefactor.disk", error,
                   fmt::format("The directory {} cannot be used ({}); make it, or name another.",
                               directory, std::strerror(error)));
  }
  const std::uint64_t free = disk.f_bavail * disk.f_frsize;
  if (free >= bytes) return {};
  return problem(Code::kNoSpace, "benefactor.disk", ENOSPC,
                 fmt::format("{} are asked for, but the file system of {} has only {} free; lend "
                             "less (--memory), or make room.",
                             format_bytes(bytes), directory, format_bytes(free)));
}

Outcome<void> check_memlock(std::uint64_t bytes, std::uint64_t limit, bool privileged) {
  if (privileged || limit >= bytes) return {};
  return problem(Code::kMemlock, "benefactor.memlock", 0,
                 fmt::format("The transport must lock {} in memory, but this process may lock only "
                             "{}. Raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity for "
                             "a service, memlock in /etc/security/limits.conf), or use --transport "
                             "tcp.",
                             format_bytes(bytes), format_bytes(limit)));
}

Outcome<void> check_memlock(std::uint64_t bytes) {
  constexpr unsigned kCapIpcLock = 14;  // capabilities(7)
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return check_memlock(bytes, limit.rlim_cur, has_capability({}, kCapIpcLock));
}

}  // namespace stdchk::benefactor
