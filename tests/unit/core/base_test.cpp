#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/back_off.h"
#include "core/base/descriptor.h"
#include "core/base/exec_words.h"
#include "core/base/file_time.h"
#include "core/base/lifetime.h"
#include "core/base/rate_limiter.h"
#include "core/base/whole_io.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace std::chrono_literals;

TEST_CASE("a watch expires when its object goes, when the lifetime ends, and when it is renewed") {
  auto object = std::make_unique<Lifetime>();
  const Lifetime::Watch first = object->watch();
  CHECK_FALSE(first.expired());
  object->renew();
  const Lifetime::Watch second = object->watch();
  CHECK(first.expired());
  CHECK_FALSE(second.expired());
  object->end();
  CHECK(second.expired());
  CHECK(object->watch().expired());
  object->renew();
  const Lifetime::Watch third = object->watch();
  CHECK_FALSE(third.expired());
  object.reset();
  CHECK(third.expired());
}

TEST_CASE("a back-off doubles up to its longest wait, and begins anew after a success") {
  BackOff back_off(50ms, 150ms);
  CHECK_FALSE(back_off.is_failing());
  CHECK(back_off.next() == 50ms);
  CHECK(back_off.is_failing());
  CHECK(back_off.next() == 100ms);
  CHECK(back_off.next() == 150ms);
  CHECK(back_off.next() == 150ms);
  back_off.reset();
  CHECK(back_off.wait() == 0ms);
  CHECK(back_off.retry_soon() == 50ms);
  CHECK(back_off.is_failing());
  CHECK(back_off.next() == 100ms);
  CHECK(back_off.retry_soon() == 50ms);
  CHECK(back_off.wait() == 100ms);
}

TEST_CASE("a rate limiter lets a burst pass and then the rate") {
  ManualClock clock;
  RateLimiter limiter(1000, 100ms);
  CHECK(limiter.reserve(100, clock.now()) == Duration::zero());
  CHECK(limiter.reserve(500, clock.now()) == 500ms);
  CHECK(limiter.reserve(500, clock.now()) == 1s);
  clock.advance(1s);
  CHECK(limiter.reserve(100, clock.now()) == 100ms);
  // A long pause saves up no more than the burst.
  clock.advance(1h);
  CHECK(limiter.reserve(1100, clock.now()) == 1s);
  CHECK(RateLimiter(0).reserve(~std::uint64_t{0}, clock.now()) == Duration::zero());
}

TEST_CASE("a rate limiter is free when the rate has covered what was reserved") {
  ManualClock clock;
  RateLimiter limiter(0, 0ms);
  limiter.reserve(1000, clock.now());
  CHECK(limiter.is_free(clock.now()));
  limiter.set_rate(1000);
  CHECK(limiter.is_free(clock.now()));
  limiter.reserve(500, clock.now());
  CHECK_FALSE(limiter.is_free(clock.now()));
  clock.advance(500ms);
  CHECK(limiter.is_free(clock.now()));
  limiter.reserve(500, clock.now());
  limiter.set_rate(0);
  CHECK(limiter.is_free(clock.now()));
}

TEST_CASE("a time of a file outlives 64 bits of nanoseconds") {
  using Limits = std::numeric_limits<std::int64_t>;
  CHECK(to_ns({1, 5}) == 1'000'000'005);
  CHECK(to_ns({-1, 999'999'999}) == -1);
  CHECK(to_ns({Limits::max(), 999'999'999}) > 9'200'000'000 * kNsPerSecond);
  CHECK(to_ns({Limits::min(), 0}) < -9'200'000'000 * kNsPerSecond);
  for (const std::int64_t ns : {Limits::min(), Limits::max(), std::int64_t{-1}, std::int64_t{0}}) {
    const timespec time = to_timespec(ns);
    CHECK(time.tv_nsec >= 0);
    CHECK(time.tv_nsec < kNsPerSecond);
    CHECK(time.tv_sec == ns / kNsPerSecond - (ns < 0 ? 1 : 0));
    CHECK(equals_stored_time(to_ns(time), time));
  }
  CHECK(equals_stored_time(1'999'999'999, {0, 0}));
  CHECK_FALSE(equals_stored_time(2'000'000'000, {0, 0}));
  CHECK_FALSE(equals_stored_time(Limits::max(), {Limits::min(), 0}));
  CHECK_FALSE(equals_stored_time(Limits::min(), {Limits::max(), 0}));
}

TEST_CASE("a range of a file is written and read as a whole, and ends where the file ends") {
  const Descriptor file(::memfd_create("stdchk-whole-io", MFD_CLOEXEC));
  REQUIRE(file);
  std::vector<std::byte> bytes(100'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  REQUIRE(write_at(file.get(), 7, bytes));
  std::vector<std::byte> back(bytes.size());
  CHECK(read_at(file.get(), 7, back) == std::ssize(back));
  CHECK(back == bytes);
  CHECK(read_at(file.get(), 107, back) == std::ssize(back) - 100);
  CHECK(std::equal(bytes.begin() + 100, bytes.end(), back.begin()));
  CHECK(read_at(file.get(), 1'000'000, back) == 0);
  CHECK(read_at(file.get(), 0, std::span(back).first(0)) == 0);
  // Errors leave errno.
  errno = 0;
  CHECK(read_at(-1, 0, back) == -1);
  CHECK(errno == EBADF);
  errno = 0;
  CHECK_FALSE(write_at(-1, 0, bytes));
  CHECK(errno == EBADF);
}

TEST_CASE("a command's words end with a null pointer, also when there are none") {
  const std::vector<std::string> command{"echo", "", "a b"};
  const std::vector<char*> words = exec_words(command);
  REQUIRE(words.size() == 4);
  for (std::size_t i = 0; i < command.size(); ++i) CHECK(std::string(words[i]) == command[i]);
  CHECK(words.back() == nullptr);
  const std::vector<std::string> none;
  CHECK(exec_words(none) == std::vector<char*>{nullptr});
}
