#include "fuse/caller.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <optional>
#include <thread>

#include "tests/support/catch.h"

using namespace stdchk::mount;

namespace {

CallerState seen(std::uint64_t flags, std::uint64_t exit_code) {
  return state_of_caller({.state = 'R', .flags = flags, .exit_code = exit_code});
}

CallerState state_of(CallerInspector& callers, std::int32_t pid, std::uint32_t uid) {
  std::optional<CallerState> found;
  callers.inspect(pid, uid, [&](CallerState state) { found = state; });
  return found.value();
}

}  // namespace

TEST_CASE("A process that a signal ends is told from one that ends by itself") {
  CHECK(seen(0x400000, 0) == CallerState::kRunning);
  CHECK(seen(0x400004, 0) == CallerState::kRunning);
  CHECK(seen(0x400004, 3 << 8) == CallerState::kRunning);
  CHECK(seen(0x400004, 9) == CallerState::kKilled);
  CHECK(seen(0x400004, 0x80 | 11) == CallerState::kKilled);
  CHECK(seen(0x400000, 9) == CallerState::kRunning);
}

TEST_CASE("What cannot be understood is not seen") {
  CHECK(state_of_caller({}) == CallerState::kUnseen);
  CallerInspector callers;
  CHECK(state_of(callers, 0, 0) == CallerState::kUnseen);
  CHECK(state_of(callers, -1, 0) == CallerState::kUnseen);
}

TEST_CASE("This process runs") {
  CallerInspector callers;
  for (int i = 0; i < 3; ++i) {
    CHECK(state_of(callers, getpid(), geteuid()) == CallerState::kRunning);
    CHECK(state_of(callers, std::numeric_limits<int>::max(), geteuid()) == CallerState::kUnseen);
  }
}

TEST_CASE("A request whose read of /proc waits for the request goes on") {
  std::promise<void> answered;
  const std::shared_future<void> wait = answered.get_future().share();
  CallerInspector callers(
      [&](std::int32_t pid, std::uint32_t) {
        if (pid == 1) wait.wait();
        return CallerState::kKilled;
      },
      std::chrono::milliseconds(200));
  CHECK(state_of(callers, 2, 0) == CallerState::kKilled);
  int calls = 0;
  std::thread::id by;
  callers.inspect(1, 0, [&](CallerState state) {
    CHECK(state == CallerState::kRunning);
    ++calls;
    by = std::this_thread::get_id();
    answered.set_value();
  });
  CHECK(calls == 1);
  CHECK(by != std::this_thread::get_id());
}
