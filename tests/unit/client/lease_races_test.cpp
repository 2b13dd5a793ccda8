// Tests what comes at a bad moment in the life of a lease (docs/decisions/0075): while a directory
// is being listed, or while the manager is away.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/client/held.h"

namespace stdchk::client::test {
namespace {

using namespace std::chrono_literals;

/// Makes the changes of names that have the client ask for the directory, but for the last.
void change_often(Held& held, FileId directory) {
  for (std::size_t i = 1; i < DirectoryLeases::kChangesToAsk; i += 2) {
    held.make_in(directory, "x");
    if (i + 2 < DirectoryLeases::kChangesToAsk) {
      REQUIRE(held.first->remove(directory, "x", false).has_value());
    }
  }
}

TEST_CASE("times that were set on an open, empty file stay") {
  Held held;
  auto second = held.pool.connect();
  auto file = held.first->create(held.directory, "a", writing(), {});
  REQUIRE(file.has_value());
  msg::SetAttributes times;
  times.file = (*file)->id();
  times.mask = static_cast<std::uint32_t>(msg::SetMask::kAtime) |
               static_cast<std::uint32_t>(msg::SetMask::kMtime);
  times.atime_ns = 1'000'000'000;
  times.mtime_ns = 2'000'000'000;
  REQUIRE(held.first->set_attributes(times).has_value());
  SECTION("its close gives it its name") {
    REQUIRE((*file)->close().has_value());
    CHECK(held.first->lookup(held.directory, "a")->mtime_ns == times.mtime_ns);
    CHECK(second->lookup_fresh(held.directory, "a")->mtime_ns == times.mtime_ns);
  }
  SECTION("it gets a session when the directory is recalled") {
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
    REQUIRE((*file)->close().has_value());
  }
  SECTION("its first byte opens a session") {
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    REQUIRE((*file)->close().has_value());
  }
  const auto here = held.first->lookup_fresh(held.directory, "a");
  CHECK(here->atime_ns == times.atime_ns);
  const auto there = second->lookup_fresh(held.directory, "a");
  CHECK(there->atime_ns == times.atime_ns);
  CHECK(there->ctime_ns == here->ctime_ns);
}

}  // namespace
}  // namespace stdchk::client::test
