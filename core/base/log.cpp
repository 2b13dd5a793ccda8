#include "core/base/log.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <string>

namespace stdchk::log {
namespace {

std::atomic<Level> minimum{Level::kWarning};
std::string program_name = "stdchk";  // set once, before threads start

constexpr std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void start(std::string_view program, Level level) {
  program_name = program;
  minimum = level;
}

bool enabled(Level level) { return level >= minimum.load(std::memory_order_relaxed); }

void write(Level level, std::string_view text) {
  if (!enabled(level)) return;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  const std::string line =
      fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z {} {}: {}\n", utc.tm_year + 1900,
                  utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                  now.tv_nsec / 1000000, level_name(level), program_name, text);
  // A single write(2) per line keeps lines of several threads and processes apart. A lost line is
  // no error.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace stdchk::log
