#include "benefactor/memory/memory_scopes.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "benefactor/memory/kernel_text.h"

namespace stdchk::benefactor {
namespace {

/// Version 1 writes "no limit" as a number close to the largest one.
constexpr std::uint64_t kLimitMax = std::uint64_t{1} << 60;

/// The names of a control group's files in one of the two interface versions.
struct GroupFiles {
  std::string mount;
  const char* limit;
  const char* high;  ///< empty: this version has no such file
  const char* usage;
  const char* inactive_files;
  const char* active_files;
};

std::optional<std::uint64_t> limit_of(const std::string& path) {
  const auto limit = whole_file_number(path);
  return limit && *limit < kLimitMax ? limit : std::nullopt;
}

/// Returns nothing for a missing group or one without a limit.
std::optional<MemoryScope> read_group(const std::string& folder, const std::string& path,
                                      const GroupFiles& names) {
  const auto limit = limit_of(folder + "/" + names.limit);
  const auto high = limit_of(folder + "/" + names.high);
  const auto usage = whole_file_number(folder + "/" + names.usage);
  if ((!limit && !high) || !usage) return std::nullopt;
  const std::string statistics = folder + "/memory.stat";
  const auto cache = keyed_number(statistics, names.inactive_files).value_or(0) +
                     keyed_number(statistics, names.active_files).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, cache);
  const auto left = [used](std::uint64_t most) { return most - std::min(most, used); };
  MemoryScope scope;
  scope.name = fmt::format("the control group {}", path.empty() ? "/" : path);
  scope.total_bytes = std::min(limit.value_or(kLimitMax), high.value_or(kLimitMax));
  scope.available_bytes = left(scope.total_bytes);
  scope.before_oom_bytes = left(limit.value_or(kLimitMax));
  scope.pressure_file = folder + "/memory.pressure";
  scope.stalled_us = stalled_us(scope.pressure_file);
  scope.oom_count = keyed_number(folder + "/memory.events.local", "oom ").value_or(0);
  return scope;
}

void add_groups(std::vector<MemoryScope>& scopes, std::string path, const GroupFiles& names) {
  // In a container the path may exist only on the host. Then the mount itself is the container's
  // group.
  for (;;) {
    if (auto scope = read_group(names.mount + path, path, names)) {
      scopes.push_back(std::move(*scope));
    }
    if (path.empty()) return;
    const auto slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

std::vector<MemoryScope> read_memory_scopes(const MachineFiles& files) {
  std::vector<MemoryScope> scopes;
  const std::string meminfo = files.proc + "/meminfo";
  if (const auto available_kib = keyed_number(meminfo, "MemAvailable:")) {
    MemoryScope machine;
    machine.name = "this machine";
    machine.is_machine = true;
    machine.available_bytes = machine.before_oom_bytes = *available_kib * 1024;
    machine.total_bytes = keyed_number(meminfo, "MemTotal:").value_or(*available_kib) * 1024;
    machine.pressure_file = files.proc + "/pressure/memory";
    machine.stalled_us = stalled_us(machine.pressure_file);
    scopes.push_back(std::move(machine));
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
    if (controllers.empty()) {
      add_groups(scopes, path,
                 {files.cgroup, "memory.max", "memory.high", "memory.current", "inactive_file",
                  "active_file"});
    } else if (controllers == "memory") {
      add_groups(scopes, path,
                 {files.cgroup + "/memory", "memory.limit_in_bytes", "", "memory.usage_in_bytes",
                  "total_inactive_file", "total_active_file"});
    }
  }
  return scopes;
}

}  // namespace stdchk::benefactor
