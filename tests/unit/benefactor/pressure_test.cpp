#include "benefactor/memory/pressure.h"

#include <filesystem>

#include "benefactor/memory/memory_watch.h"
#include "benefactor/service/leaver.h"
#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

using limits::kGiB;
using limits::kMiB;
using namespace std::chrono_literals;

constexpr std::uint64_t kReserve = 512 * kMiB;

/// A Watched is a scope of 16 GiB whose figures the test sets, with a judge of its memory pressure.
struct Watched {
  Watched() {
    scope.name = "this machine";
    scope.is_machine = true;
    scope.total_bytes = 16 * kGiB;
    has(8 * kGiB);
  }
  void has(std::uint64_t bytes) { scope.available_bytes = scope.before_oom_bytes = bytes; }
  /// The highest pressure seen within `time`, while tasks stall for the share `stalled` of it.
  Pressure over(Duration time, double stalled = 0) {
    Pressure worst = Pressure::kNone;
    const Time until = clock.now() + time;
    while (clock.now() < until) {
      const Duration step = judge.next_sample();
      clock.advance(step);
      stalled_us += stalled * static_cast<double>(step.count()) / 1000;
      scope.stalled_us = static_cast<std::uint64_t>(stalled_us);
      worst = std::max(worst, judge.judge({scope}, clock.now()));
    }
    return worst;
  }
  ManualClock clock;
  MemoryScope scope;
  PressureJudge judge{{}};
  double stalled_us = 0;
};

}  // namespace

TEST_CASE("the reserve is a share of the memory, what was asked for, and never too much") {
  CHECK(reserve_of(16 * kGiB, {}) == kReserve);
  CHECK(reserve_of(1024 * kGiB, {}) == 2 * kGiB);
  CHECK(reserve_of(16 * kGiB, {.reserve_bytes = kGiB}) == kGiB);
  CHECK(reserve_of(2 * kGiB, {.reserve_bytes = kGiB}) == kGiB / 2);
}

TEST_CASE("the machine and every control group with a limit are read, the innermost first") {
  const OtherMachine machine("MemTotal: 4096 kB\nMemAvailable: 1024 kB\n", "0::/job/step/task\n");
  machine.group("/job/step/task", "memory.max", "max\n");
  machine.group("/job/step/task", "memory.high", "max\n");
  machine.group("/job/step/task", "memory.current", "100\n");
  machine.group("/job/step", "memory.max", "1000\n");
  machine.group("/job/step", "memory.high", "800\n");
  machine.group("/job/step", "memory.current", "700\n");
  machine.group("/job/step", "memory.stat", "anon 500\ninactive_file 60\nactive_file 40\n");
  machine.group("/job/step", "memory.events.local", "low 0\nhigh 9\nmax 8\noom 3\noom_kill 2\n");
  machine.group("/job/step", "memory.pressure",
                "some avg10=1.00 avg60=0.00 avg300=0.00 total=15455\n"
                "full avg10=0.00 avg60=0.00 avg300=0.00 total=11235\n");
  machine.group("/job", "memory.max", "5000\n");
  machine.group("/job", "memory.current", "6000\n");
  const std::vector<MemoryScope> scopes = read_memory_scopes(machine.files);
  REQUIRE(scopes.size() == 3);
  CHECK(scopes[0].name == "this machine");
  CHECK(scopes[0].is_machine);
  CHECK(scopes[0].total_bytes == 4096 * 1024);
  CHECK(scopes[0].available_bytes == 1024 * 1024);
  CHECK(scopes[0].before_oom_bytes == 1024 * 1024);
  CHECK_FALSE(scopes[0].stalled_us);
  CHECK(scopes[1].name == "the control group /job/step");
  CHECK(scopes[1].total_bytes == 800);
  CHECK(scopes[1].available_bytes == 200);
  CHECK(scopes[1].before_oom_bytes == 400);
  CHECK(scopes[1].stalled_us == 15455);
  CHECK(scopes[1].oom_count == 3);
  CHECK(scopes[2].name == "the control group /job");
  CHECK(scopes[2].available_bytes == 0);
}

TEST_CASE(
    "a version 1 group without a limit is no scope, and a kernel that tells nothing has none") {
  const OtherMachine machine("nothing\n", "4:memory:/job\n");
  machine.group("/memory/job", "memory.limit_in_bytes", "9223372036854771712\n");
  machine.group("/memory/job", "memory.usage_in_bytes", "100\n");
  CHECK(read_memory_scopes(machine.files).empty());
  machine.group("/memory/job", "memory.limit_in_bytes", "1000\n");
  machine.group("/memory/job", "memory.stat", "active_file 7\ntotal_active_file 10\n");
  const auto scopes = read_memory_scopes(machine.files);
  REQUIRE(scopes.size() == 1);
  CHECK(scopes[0].available_bytes == 910);
}

TEST_CASE("little memory is pressure when it lasts, and a spike is none") {
  Watched one;
  CHECK(one.over(1h) == Pressure::kNone);
  for (int i = 0; i < 10; ++i) {
    one.has(kReserve - 1);
    CHECK(one.over(2s) == Pressure::kNone);
    one.has(2 * kReserve);
    CHECK(one.over(1s) == Pressure::kNone);
  }
  one.has(kReserve - 1);
  CHECK(one.over(5s) == Pressure::kHigh);
  CHECK(one.judge.reason().find("this machine has") != std::string::npos);
  // Free memory slightly above the reserve does not end the pressure.
  one.has(kReserve + kReserve / 8);
  CHECK(one.over(1s) == Pressure::kHigh);
  one.has(kReserve + kReserve / 4);
  CHECK(one.over(1h) == Pressure::kNone);
  // Nor does this amount begin pressure.
  one.has(kReserve + kReserve / 8);
  CHECK(one.over(1h) == Pressure::kNone);
}

TEST_CASE("what must last begins again when nobody could leave") {
  Watched one;
  one.has(kReserve - 1);
  CHECK(one.over(5s) == Pressure::kHigh);
  one.judge.begin_again();
  CHECK(one.over(2s) == Pressure::kNone);
  CHECK(one.over(2s) == Pressure::kHigh);
}

TEST_CASE("memory that is nearly gone is critical within a second") {
  Watched one;
  one.has(kReserve);
  one.over(2s);
  one.has(kReserve / 2 - 1);
  CHECK(one.over(400ms) == Pressure::kNone);
  CHECK(one.over(300ms) == Pressure::kCritical);
  one.has(kReserve / 2);
  CHECK(one.over(10s) == Pressure::kHigh);
}

TEST_CASE("a group above memory.high is short of memory, but not near the OOM killer") {
  Watched one;
  one.scope.available_bytes = 0;
  CHECK(one.over(1h) == Pressure::kHigh);
}

TEST_CASE(
    "a group that has reached its limit is critical at once, and one that had reached it not") {
  Watched one;
  one.scope.oom_count = 7;
  CHECK(one.over(1h) == Pressure::kNone);
  one.scope.oom_count = 8;
  CHECK(one.over(1s) == Pressure::kCritical);
  CHECK(one.over(1h) == Pressure::kNone);
}

TEST_CASE("tasks that wait for memory are pressure where little is available, and elsewhere not") {
  Watched one;
  CHECK(one.over(1h, 0.9) == Pressure::kNone);
  CHECK(one.over(1min, 0) == Pressure::kNone);
  one.has(PressureJudge::kNear * kReserve - 1);
  CHECK(one.over(1h, 0.1) == Pressure::kNone);
  for (int i = 0; i < 20; ++i) {
    CHECK(one.over(1500ms, 0.9) == Pressure::kNone);
    CHECK(one.over(1min, 0) == Pressure::kNone);
  }
  CHECK(one.over(20s, 0.25) == Pressure::kHigh);
  CHECK(one.judge.reason().find("wait for memory") != std::string::npos);
  CHECK(one.over(20s, 0.15) == Pressure::kHigh);
  CHECK(one.over(20s, 0.05) == Pressure::kHigh);
  CHECK(one.over(1h, 0.05) == Pressure::kNone);
}

TEST_CASE("samples are closer together where little memory is left") {
  Watched one;
  one.over(1s);
  CHECK(one.judge.next_sample() == PressureJudge::kSampleInterval);
  one.has(2 * kReserve - 1);
  one.over(1s);
  CHECK(one.judge.next_sample() == PressureJudge::kSampleIntervalShort);
}

TEST_CASE("the watch tells of pressure, and of one that nobody could act on again later") {
  ManualClock clock;
  Reactor reactor(clock);
  const OtherMachine machine("MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  std::filesystem::create_directories(machine.files.proc + "/pressure");
  write_file(machine.files.proc + "/pressure/memory", "some avg10=0.00 total=5\n");
  std::vector<Time> told;
  bool acts = false;
  MemoryWatch watch(reactor, {}, machine.files, [&](Pressure pressure, const std::string& why) {
    CHECK(pressure == Pressure::kHigh);
    CHECK_FALSE(why.empty());
    told.push_back(clock.now());
    return acts;
  });
  const auto pass = [&](Duration time) {
    const Time until = clock.now() + time;
    while (clock.now() < until) {
      clock.advance_to(std::min(until, reactor.next_timer()));
      reactor.run_once({});
    }
  };
  pass(10s);
  CHECK(told.empty());
  write_file(machine.files.proc + "/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 524287 kB\n");
  pass(9500ms);
  REQUIRE(told.size() == 2);
  CHECK(told[1] - told[0] > PressureJudge::kHold);
  acts = true;
  pass(4s);
  CHECK(told.size() > 5);
}

TEST_CASE("one of those that share a file has its turn") {
  const TemporaryFolder folder;
  write_file(folder / "secret", "");
  LeaveTurn first(folder / "secret");
  LeaveTurn third(folder / "secret");
  {
    LeaveTurn second(folder / "secret");
    CHECK(second.take());
    CHECK(second.take());
    CHECK_FALSE(first.take());
  }
  CHECK(first.take());
  CHECK_FALSE(third.take());
  CHECK(LeaveTurn(folder / "absent").take());
}

}  // namespace stdchk::benefactor
