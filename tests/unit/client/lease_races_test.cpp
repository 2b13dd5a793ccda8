// Tests calls during the listing of a new lease, and while the manager is away
// (docs/decisions/0075).
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

TEST_CASE("a change of attributes during the listing of a new lease stays visible") {
  Held held;
  const FileId directory = held.make_directory("e");
  held.make_in(directory, "f");
  const FileId file = held.first->lookup(directory, "f")->id;
  std::this_thread::sleep_for(DirectoryLeases::kChangesWithin);
  const bool of_directory = GENERATE(false, true);
  change_often(held, directory);
  held.pool.delay_journal(400ms);
  REQUIRE(held.first->remove(directory, "x", false).has_value());
  // The manager journals the lease. Its grant arrives while the client's messages wait.
  std::this_thread::sleep_for(200ms);
  held.hold_messages();
  std::this_thread::sleep_for(400ms);
  held.pool.delay_journal({});
  Result<Attributes> changed = fail(Code::kCancelled, "test");
  std::thread other([&] {
    changed = held.first->set_attributes(new_mode(of_directory ? directory : file, 0700));
  });
  std::this_thread::sleep_for(200ms);
  held.let_messages_go();
  other.join();
  REQUIRE(changed.has_value());
  CHECK(changed->mode == 0700);
  const auto mode_now = [&] {
    return of_directory ? held.first->attributes(directory)->mode
                        : held.first->lookup(directory, "f")->mode;
  };
  if (!of_directory) REQUIRE(comes_true([&] { return held.is_held_here(directory); }));
  CHECK(mode_now() == 0700);
}

TEST_CASE("a commit during the listing of a new lease stays visible") {
  Held held;
  const FileId directory = held.make_directory("e");
  {
    auto second = held.pool.connect();
    lease_names(*second);
    for (int i = 0; i < 3000; ++i) {
      auto file = second->create(directory, "f" + std::to_string(i), writing(), {});
      REQUIRE((*file)->close().has_value());
    }
  }
  std::this_thread::sleep_for(2 * limits::kCacheLease + 100ms);  // nobody else watches it
  auto file = held.first->open(held.first->lookup(directory, "f0")->id, writing(true));
  REQUIRE(file.has_value());
  REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
  change_often(held, directory);
  held.pool.delay_journal(400ms);
  REQUIRE(held.first->remove(directory, "x", false).has_value());
  std::this_thread::sleep_for(200ms);
  held.pool.delay_journal({});
  held.on_client([&] {
    held.link->plan().delay_ppm = 1'000'000;
    held.link->plan().delay_max = 300ms;
  });
  std::this_thread::sleep_for(400ms);
  REQUIRE((*file)->close().has_value());
  CHECK_FALSE(held.is_held_here(directory));
  held.on_client([&] { held.link->plan().delay_ppm = 0; });
  REQUIRE(comes_true([&] { return held.is_held_here(directory); }));
  CHECK(held.first->lookup(directory, "f0")->size_bytes == 1000);
}

TEST_CASE("an open file without bytes can be used when the manager was away") {
  StoppableClock own;
  Held held(&own);
  auto file = held.first->create(held.directory, "a", writing(), {0640, 3, 4});
  REQUIRE(file.has_value());
  held.pool.restart_manager([&] {
    Status done;
    std::thread writer([&] { done = (*file)->write(0, random_bytes(1000, 1)); });
    std::this_thread::sleep_for(300ms);
    own.jump(limits::kManagerDeadline + 1s);
    writer.join();
    CHECK_FALSE(done.has_value());
  });
  CHECK(comes_true([&] { return (*file)->write(0, random_bytes(1000, 1)).has_value(); }));
  REQUIRE((*file)->close().has_value());
  auto second = held.pool.connect();
  const auto seen = second->lookup_fresh(held.directory, "a");
  REQUIRE(seen.has_value());
  CHECK(seen->size_bytes == 1000);
  CHECK(seen->mode == 0640);
  CHECK(seen->id == (*file)->id());
}

TEST_CASE("no request overtakes a batch that has to be sent again") {
  StoppableClock own;
  Held held(&own);
  auto file = held.first->create(held.directory, "a", writing(), {});
  REQUIRE(file.has_value());
  held.hold_messages();
  REQUIRE((*file)->flush().has_value());
  std::this_thread::sleep_for(100ms);
  own.jump(limits::kManagerDeadline - 5s);
  std::this_thread::sleep_for(100ms);
  Status done;
  std::thread writer([&] { done = (*file)->write(0, random_bytes(1000, 1)); });
  std::this_thread::sleep_for(200ms);
  own.jump(6s);  // past the batch's deadline only
  std::this_thread::sleep_for(200ms);
  held.let_messages_go();
  writer.join();
  INFO((done.has_value() ? std::string() : describe(done.error())));
  CHECK(done.has_value());
  REQUIRE((*file)->close().has_value());
  CHECK(held.pool.connect()->lookup_fresh(held.directory, "a")->size_bytes == 1000);
}

TEST_CASE("a client that has returned its leases loses nothing with its link") {
  Held held;
  held.make("a");
  held.pool.restart_manager();
  REQUIRE(comes_true([&] { return !held.is_held(); }));
  REQUIRE(comes_true([&] { return held.first->lookup(held.directory, "a").has_value(); }));
  held.on_client([&] { held.link->drop_links(); });
  held.make("b");
  held.make("c");
  CHECK(held.losses() == 0);
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
