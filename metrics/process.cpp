#include "metrics/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "core/base/process_id.h"

namespace stdchk::metrics {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

/// The sizes in /proc/self/statm, which has them in pages; see proc(5).
struct Memory {
  std::uint64_t size_bytes = 0;
  std::uint64_t resident_bytes = 0;
};
std::optional<Memory> memory() {
  std::ifstream file("/proc/self/statm");
  Memory found;
  if (!(file >> found.size_bytes >> found.resident_bytes)) return std::nullopt;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return Memory{found.size_bytes * page, found.resident_bytes * page};
}

/// The start time in seconds since 1970: the host's boot time (/proc/stat) plus field 22 of
/// /proc/self/stat, which is in ticks.
std::optional<double> started() {
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  const auto ticks = static_cast<double>(parse_process_state(text).start_ticks);
  if (ticks == 0) return std::nullopt;
  std::ifstream of_host("/proc/stat");
  for (std::string word; of_host >> word;) {
    double boot = 0;
    if (word == "btime" && of_host >> boot) {
      return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
  }
  return std::nullopt;
}

}  // namespace

void add_process(Exposition& to) {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    to.counter("process_cpu_seconds_total", "Processor time of the process, user and system.",
               seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  if (const auto found = memory()) {
    to.gauge("process_virtual_memory_bytes", "Address space.", found->size_bytes);
    to.gauge("process_resident_memory_bytes", "Memory that is resident.", found->resident_bytes);
  }
  if (const auto at = started()) {
    to.gauge("process_start_time_seconds", "When the process was started, since 1970.", *at);
  }
  std::error_code code;
  std::uint64_t open = 0;
  for (auto each = std::filesystem::directory_iterator("/proc/self/fd", code);
       !code && each != std::filesystem::directory_iterator(); each.increment(code)) {
    ++open;
  }
  if (!code) to.gauge("process_open_fds", "Open descriptors.", open);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    to.gauge("process_max_fds", "Limit of open descriptors.", std::uint64_t{limit.rlim_cur});
  }
}

}  // namespace stdchk::metrics
