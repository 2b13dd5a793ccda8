#include "benefactor/machine.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/units.h"

namespace stdchk::benefactor {
namespace {

constexpr const char* kWhere = "benefactor.memory";

std::optional<std::uint64_t> to_number(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  errno = 0;
  const std::uint64_t number = std::strtoull(copy.c_str(), &end, 10);
  if (end == copy.c_str() || errno != 0) return std::nullopt;
  return number;
}

/// The number behind "KEY" in a file of lines such as "MemAvailable:   12 kB" or "inactive_file
/// 12".
std::optional<std::uint64_t> keyed_number(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const auto digits = line.find_first_of("0123456789", key.size());
    if (digits != std::string::npos) return to_number(std::string_view(line).substr(digits));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> whole_file_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return to_number(word);  // "max" is no number: no limit
}

/// The names of a control group's files in one of the two versions of the interface.
struct GroupFiles {
  std::string mount;
  const char* limit;
  const char* usage;
  const char* reclaimable;
};

/// What may still be taken within one group, or nothing when it has no limit.
std::optional<std::uint64_t> group_room(const std::string& folder, const GroupFiles& names) {
  const auto limit = whole_file_number(folder + "/" + names.limit);
  const auto usage = whole_file_number(folder + "/" + names.usage);
  if (!limit || !usage) return std::nullopt;
  const auto cache = keyed_number(folder + "/memory.stat", names.reclaimable).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

Outcome<void> check_group(std::uint64_t bytes, std::string path, const GroupFiles& names) {
  // Inside a container the path may be one that only the host sees; the mount is then its own
  // group.
  for (;;) {
    const auto room = group_room(names.mount + path, names);
    if (room && *room < bytes) {
      return problem(
          Code::kNoMemory, kWhere, 0,
          fmt::format("{} are asked for, but the control group {} of this process may "
                      "only take {} more; lend less (--memory), or raise the job's or "
                      "container's memory limit.",
                      format_bytes(bytes), path.empty() ? "/" : path, format_bytes(*room)));
    }
    if (path.empty()) return {};
    const auto slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

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

Outcome<void> check_memory(std::uint64_t bytes, const MachineFiles& files) {
  const auto available_kib = keyed_number(files.proc + "/meminfo", "MemAvailable:");
  if (available_kib) {
    const std::uint64_t available = *available_kib * 1024;
    const std::uint64_t lendable = available - std::min(available, kMemoryKeptFree);
    if (bytes > lendable) {
      return problem(Code::kNoMemory, kWhere, 0,
                     fmt::format("{} are asked for, but this machine can lend only {} ({} are "
                                 "available, {} stay free for others); lend less (--memory), or "
                                 "end what uses the memory.",
                                 format_bytes(bytes), format_bytes(lendable),
                                 format_bytes(available), format_bytes(kMemoryKeptFree)));
    }
  }
  std::ifstream groups(files.proc + "/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    Outcome<void> checked;
    if (controllers.empty()) {
      checked =
          check_group(bytes, path, {files.cgroup, "memory.max", "memory.current", "inactive_file"});
    } else if (controllers == "memory") {
      checked = check_group(bytes, path,
                            {files.cgroup + "/memory", "memory.limit_in_bytes",
                             "memory.usage_in_bytes", "total_inactive_file"});
    }
    if (!checked) return checked;
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
                             "{}; raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity for "
                             "a service, memlock in /etc/security/limits.conf) or use --transport "
                             "ofi:tcp.",
                             format_bytes(bytes), format_bytes(limit)));
}

Outcome<void> check_memlock(std::uint64_t bytes) {
  constexpr unsigned kCapIpcLock = 14;  // capabilities(7)
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return check_memlock(bytes, limit.rlim_cur, has_capability({}, kCapIpcLock));
}

}  // namespace stdchk::benefactor
