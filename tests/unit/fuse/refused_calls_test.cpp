#include "fuse/refused_calls.h"

#include <chrono>

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::mount;
using namespace std::chrono_literals;

namespace {

using Call = RefusedCalls::Call;
constexpr std::int32_t kThread = 7;
constexpr FileId kFile{5};
constexpr FileId kOther{6};

RefusedCalls::Held held(FileId file) { return {file, nullptr, "target", {}}; }

}  // namespace

TEST_CASE("The look-up of a repeated call holds a file, which the call takes once") {
  ManualClock clock;
  RefusedCalls calls(clock);
  CHECK_FALSE(calls.repeats(kThread));
  REQUIRE(calls.refuse(kThread, kFile, Call::kOpen));
  CHECK(calls.repeats(kThread));
  CHECK_FALSE(calls.repeats(kThread + 1));
  calls.hold(kThread, held(kOther));
  CHECK_FALSE(calls.held(kThread, kFile));
  CHECK(calls.held(kThread, kOther)->target == "target");
  CHECK_FALSE(calls.held(kThread, kOther));
  calls.end(kThread);
  CHECK_FALSE(calls.repeats(kThread));
}

TEST_CASE("The error of a held file is kept through a second look-up") {
  ManualClock clock;
  RefusedCalls calls(clock);
  REQUIRE(calls.refuse(kThread, kFile, Call::kOpen));
  auto lost = held(kOther);
  lost.error = Error{Code::kNoSpace, 0, "test"};
  calls.hold(kThread, std::move(lost));
  calls.hold(kThread, held(kOther));
  const auto taken = calls.held(kThread, kOther);
  REQUIRE(taken);
  REQUIRE(taken->error);
  CHECK(taken->error->code == Code::kNoSpace);
  REQUIRE(calls.refuse(kThread, kFile, Call::kOpen));
  calls.hold(kThread, held(kOther));
  CHECK_FALSE(calls.held(kThread, kOther)->error);
}

TEST_CASE("A call without a look-up is not refused twice") {
  ManualClock clock;
  RefusedCalls calls(clock);
  REQUIRE(calls.refuse(kThread, kFile, Call::kOpen));
  CHECK_FALSE(calls.refuse(kThread, kFile, Call::kOpen));
  CHECK(calls.refuse(kThread, kFile, Call::kOpen));
}

TEST_CASE("A repeated getxattr ends the repetition of a getxattr, and not that of an open") {
  ManualClock clock;
  RefusedCalls calls(clock);
  REQUIRE(calls.refuse(kThread, kFile, Call::kXattr));
  calls.hold(kThread, held(kOther));
  CHECK_FALSE(calls.end_xattr(kThread, kFile));
  CHECK(calls.end_xattr(kThread, kOther));
  CHECK_FALSE(calls.repeats(kThread));
  CHECK_FALSE(calls.held(kThread, kOther));
  REQUIRE(calls.refuse(kThread, kFile, Call::kOpen));
  calls.hold(kThread, held(kOther));
  CHECK_FALSE(calls.end_xattr(kThread, kOther));
  CHECK(calls.held(kThread, kOther));
}

TEST_CASE("A look-up of any thread ends holds whose calls have not come for a minute") {
  ManualClock clock;
  RefusedCalls calls(clock);
  REQUIRE(calls.refuse(kThread, kFile, Call::kXattr));
  calls.hold(kThread, held(kOther));
  clock.advance(RefusedCalls::kRepeatMax - 1s);
  CHECK_FALSE(calls.repeats(kThread + 1));
  CHECK(calls.repeats(kThread));
  clock.advance(1s);
  CHECK_FALSE(calls.repeats(kThread + 1));
  CHECK_FALSE(calls.held(kThread, kOther));
}
