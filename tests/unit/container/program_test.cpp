#include "container/program/program.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

TEST_CASE("a program's output comes back, and its input reaches it") {
  const std::string input(300'000, 'x');
  const auto said = run_program({.words = {"cat"}, .input = input});
  REQUIRE(said.has_value());
  CHECK(*said == input);
}

TEST_CASE("a program that fails is named with its status and its own words") {
  const auto said = run_program({.words = {"sh", "-c", "echo why >&2; exit 3"}});
  REQUIRE_FALSE(said.has_value());
  CHECK(said.error().text == "sh ended with status 3: why");
  const auto absent = run_program({.words = {"/no/such/program"}});
  REQUIRE_FALSE(absent.has_value());
  CHECK(absent.error().text.find("No such file") != std::string::npos);
}

TEST_CASE("a program that hangs is killed at the deadline, with what it has started") {
  const auto began = std::chrono::steady_clock::now();
  const auto said = run_program(
      {.words = {"sh", "-c", "sleep 100 & sleep 100"}, .deadline = std::chrono::milliseconds(200)});
  REQUIRE_FALSE(said.has_value());
  CHECK(said.error().text.find("did not end within 200 ms") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
}

TEST_CASE("a program that is not wanted any more is killed") {
  std::atomic<bool> cancelled = false;
  std::thread later([&] { cancelled = true; });
  const auto said = run_program(
      {.words = {"sleep", "100"}, .deadline = std::chrono::seconds(90), .cancelled = &cancelled});
  later.join();
  REQUIRE_FALSE(said.has_value());
  CHECK(said.error().text == "sleep was cancelled and killed");
}

}  // namespace
}  // namespace stdchk::container
