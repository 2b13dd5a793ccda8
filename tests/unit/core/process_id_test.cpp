#include "core/base/process_id.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "tests/support/catch.h"

using namespace stdchk;

namespace {

/// A text of /proc/PID/stat with these values of fields 2, 9 and 52. Field 4 is 7, field 22 is 99.
std::string stat_text(const std::string& name, unsigned flags, unsigned exit_code) {
  std::string text = fmt::format("4242 ({}) S 7 4242 4242 0 -1 {}", name, flags);
  for (int field = 10; field < 52; ++field) text += field == 22 ? " 99" : " -1";
  return text + fmt::format(" {}\n", exit_code);
}

}  // namespace

TEST_CASE("A process's name with spaces and parentheses does not shift the fields") {
  for (const char* name : {"app", "a b", "a) Z 1 (b", ")", "", "a\nb) R"}) {
    CAPTURE(name);
    const ProcessState found = parse_process_state(stat_text(name, 0x400000, 9));
    CHECK(found.state == 'S');
    CHECK(found.parent == 7);
    CHECK(found.flags == 0x400000);
    CHECK(found.start_ticks == 99);
    CHECK(found.exit_code == 9);
    CHECK_FALSE(found.is_ending());
  }
}

TEST_CASE("A text without all fields of a process is no process") {
  const std::string good = stat_text("app", 0x4, 9);
  CHECK(parse_process_state(good).is_ending());
  CHECK(parse_process_state(good.substr(0, good.size() - 1)).state == 'S');
  std::string wrong = good;
  wrong.replace(wrong.find(" 99"), 3, " 9x");
  for (const std::string& text : {std::string(), std::string("12 (short) R 1 2 3"), wrong,
                                  good.substr(0, 40), good.substr(0, good.size() - 2)}) {
    CAPTURE(text);
    const ProcessState found = parse_process_state(text);
    CHECK(found.state == 'X');
    CHECK(found.start_ticks == 0);
    CHECK(found.is_ending());
  }
}

TEST_CASE("The state of this process is read, whatever its name is") {
  char before[16];
  REQUIRE(::prctl(PR_GET_NAME, before) == 0);
  REQUIRE(::prctl(PR_SET_NAME, "a) Z 1 (b") == 0);
  const ProcessState found = read_process_state(::getpid());
  ::prctl(PR_SET_NAME, before);
  CHECK(found.state == 'R');
  CHECK(found.parent == ::getppid());
  CHECK(found.start_ticks > 0);
  CHECK_FALSE(found.is_ending());
  CHECK(is_alive(this_process()));
}

TEST_CASE("A process that has ended is ending until it is reaped, and has vanished then") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(child > 0);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  const ProcessState zombie = read_process_state(child);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(zombie.state == 'Z');
  CHECK(zombie.is_ending());
  CHECK_FALSE(is_alive({child, zombie.start_ticks}));
  const ProcessState vanished = read_process_state(child);
  CHECK(vanished.state == 'X');
  CHECK(vanished.is_ending());
}
