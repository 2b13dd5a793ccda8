#include "fuse/caller.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <string>

#include "tests/support/catch.h"

using namespace stdchk::mount;

namespace {

/// A line of /proc/PID/stat with these values of fields 9 and 52.
std::string stat_line(const std::string& command, unsigned flags, unsigned exit_code) {
  std::string line = fmt::format("4242 ({}) R 1 4242 4242 0 -1 {}", command, flags);
  for (int field = 10; field < 52; field++) line += " 0";
  return line + fmt::format(" {}\n", exit_code);
}

}  // namespace

TEST_CASE("A process that a signal ends is told from one that ends by itself") {
  CHECK(parse_process_stat(stat_line("app", 0x400000, 0)) == CallerState::kRunning);
  CHECK(parse_process_stat(stat_line("app", 0x400004, 0)) == CallerState::kRunning);
  CHECK(parse_process_stat(stat_line("app", 0x400004, 3 << 8)) == CallerState::kRunning);
  CHECK(parse_process_stat(stat_line("app", 0x400004, 9)) == CallerState::kKilled);
  CHECK(parse_process_stat(stat_line("app", 0x400004, 0x80 | 11)) == CallerState::kKilled);
  CHECK(parse_process_stat(stat_line("app", 0x400000, 9)) == CallerState::kRunning);
}

TEST_CASE("A command name with spaces and parentheses does not shift the fields") {
  CHECK(parse_process_stat(stat_line("a) 1 (b", 0x4, 9)) == CallerState::kKilled);
}

TEST_CASE("What cannot be understood is not seen") {
  CHECK(parse_process_stat("") == CallerState::kUnseen);
  CHECK(parse_process_stat("12 (short) R 1 2 3") == CallerState::kUnseen);
  CHECK(parse_process_stat(stat_line("app", 0x4, 9).substr(0, 40)) == CallerState::kUnseen);
  CHECK(inspect_caller(0, 0) == CallerState::kUnseen);
  CHECK(inspect_caller(-1, 0) == CallerState::kUnseen);
}

TEST_CASE("This process runs") {
  for (int i = 0; i < 3; ++i) {
    CHECK(inspect_caller(getpid(), geteuid()) == CallerState::kRunning);
    CHECK(inspect_caller(std::numeric_limits<int>::max(), geteuid()) == CallerState::kUnseen);
  }
}
