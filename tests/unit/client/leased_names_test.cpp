// Tests directories that a client holds (docs/decisions/0075), against a real manager in memory.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/unit/client/held.h"

namespace stdchk::client::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("the holder of a directory answers its own calls, and the manager learns all of them") {
  Held held;
  const std::uint64_t requests = held.requests_of([&] {
    for (int i = 0; i < 200; ++i) held.make("f" + std::to_string(i));
    for (int i = 0; i < 100; ++i) {
      REQUIRE(held.first->remove(held.directory, "f" + std::to_string(i), false) == 0U);
    }
    msg::Rename change{{}, held.directory, "f100", held.directory, "g"};
    REQUIRE(held.first->rename(change) == 1U);
    change = {{}, held.directory, "f101", held.directory, "g"};
    REQUIRE(held.first->rename(change) == 0U);
    REQUIRE(held.first->make_directory(held.directory, "sub", {0700, 5, 6}).has_value());
    REQUIRE(held.first->make_symlink(held.directory, "link", "g", {0777, 5, 6}).has_value());
  });
  // Batches, heartbeats, and no request for each call.
  CHECK(requests < 100);
  CHECK(code_of(held.first->lookup(held.directory, "f0")) == Code::kNotFound);
  CHECK(held.first->read_directory(held.directory)->size() == 101);
  const auto file = held.first->lookup(held.directory, "f150");
  REQUIRE(file.has_value());
  CHECK(file->version == 1);
  msg::SetAttributes mode;
  mode.file = file->id;
  mode.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  mode.mode = 0600;
  REQUIRE(held.first->set_attributes(mode)->mode == 0600);
  CHECK(held.is_held());

  auto second = held.pool.connect();
  const auto listing = second->read_directory(held.directory);
  REQUIRE(listing.has_value());
  CHECK(listing->size() == 101);
  const auto seen = second->lookup_fresh(held.directory, "f150");
  REQUIRE(seen.has_value());
  CHECK(seen->id == file->id);
  CHECK(seen->mode == 0600);
  CHECK(seen->uid == 3);
  CHECK(seen->mtime_ns == file->mtime_ns);
  CHECK(second->lookup_fresh(held.directory, "sub")->mode == 0700);
  CHECK_FALSE(held.is_held());
  // Holder and manager agree on attributes.
  const auto now = held.first->lookup_fresh(held.directory, "f150");
  CHECK(now->ctime_ns == seen->ctime_ns);
  CHECK(held.first->attributes(held.directory)->mtime_ns ==
        second->attributes(held.directory)->mtime_ns);
}

TEST_CASE("the holder knows which files of its directory have no extended attributes") {
  Held held;
  const auto set = [&](FileId file) {
    return held.first->set_xattr(msg::SetXattr{{}, file, "user.k", "v"}).has_value();
  };
  held.make("f");
  const FileId file = held.first->lookup(held.directory, "f")->id;
  auto open = held.first->create(held.directory, "open", writing(), {0640, 3, 4});
  REQUIRE(open.has_value());
  const FileId empty = (*open)->attributes().id;
  for (const FileId one : {file, empty, held.directory}) {
    CHECK(held.first->attributes(one)->has_no_xattrs);
  }
  CHECK(held.is_held());

  REQUIRE(set(empty));
  CHECK_FALSE(held.first->attributes(empty)->has_no_xattrs);
  REQUIRE((*open)->close().has_value());
  CHECK_FALSE(held.first->lookup(held.directory, "open")->has_no_xattrs);

  held.hold();
  CHECK_FALSE(held.first->lookup(held.directory, "open")->has_no_xattrs);
  REQUIRE(set(file));
  CHECK_FALSE(held.first->attributes(file)->has_no_xattrs);
  CHECK_FALSE(held.first->lookup(held.directory, "f")->has_no_xattrs);

  held.hold();
  REQUIRE(set(held.directory));
  CHECK_FALSE(held.first->attributes(held.directory)->has_no_xattrs);
}

TEST_CASE("nobody sees the old state of a name in a held directory after the new one") {
  Held held;
  auto second = held.pool.connect();
  for (int round = 0; round < 3; ++round) {
    held.hold();
    held.make("a");
    REQUIRE(second->lookup_fresh(held.directory, "a").has_value());
    REQUIRE(second->remove(held.directory, "a", false) == 0U);
    CHECK(code_of(held.first->lookup_fresh(held.directory, "a")) == Code::kNotFound);
    std::this_thread::sleep_for(2 * limits::kCacheLease + 100ms);
  }
}

TEST_CASE("a client returns a lease that it does not know, and keeps the others") {
  Held held;
  auto second = held.pool.connect();
  const auto unknown = held.first->make_directory(kRootFile, "unknown", {0755, 1, 2});
  REQUIRE(unknown.has_value());
  // The test drops the answer, as a lost link would.
  const auto reply = held.first->ask(msg::LeaseDirectory{{}, unknown->id, 0});
  REQUIRE(std::get<msg::LeaseDirectory::Reply>(*reply).granted);
  REQUIRE(held.pool.leases() == 2);
  const auto began = std::chrono::steady_clock::now();
  CHECK(code_of(second->lookup_fresh(unknown->id, "a")) == Code::kNotFound);
  CHECK(std::chrono::steady_clock::now() - began < limits::kLease - 1s);
  CHECK(held.pool.leases() == 1);
  held.make("a");
  CHECK(sync_names(*held.first, held.directory));
}

TEST_CASE("the holder of a directory can ask whether a file is drained") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("stdchk-holder-test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  {
    Held held(nullptr, folder.string());
    held.make("a");
    const FileId a = held.first->lookup(held.directory, "a")->id;
    CHECK(
        comes_true([&] { return held.first->attributes_fresh(a)->drain == DrainState::kDrained; }));
    CHECK(held.is_held_here(held.directory));
  }
  std::filesystem::remove_all(folder);
}

TEST_CASE("the errors of a holder are those of the manager") {
  Held held;
  held.make("a");
  REQUIRE(held.first->make_directory(held.directory, "e", {}).has_value());
  OpenFlags exclusive = writing();
  exclusive.exclusive = true;
  CHECK(held.first->create(held.directory, "a", exclusive, {}).error().code == Code::kExists);
  CHECK(held.first->create(held.directory, "e", writing(), {}).error().code == Code::kIsDirectory);
  CHECK(code_of(held.first->make_directory(held.directory, "a", {})) == Code::kExists);
  CHECK(held.first->remove(held.directory, "a", true).error().code == Code::kNotDirectory);
  CHECK(held.first->remove(held.directory, "e", false).error().code == Code::kIsDirectory);
  CHECK(held.first->remove(held.directory, "x", false).error().code == Code::kNotFound);
  const std::string long_name(limits::kNameBytesMax + 1, 'n');
  CHECK(code_of(held.first->lookup(held.directory, long_name)) == Code::kNameTooLong);
  CHECK(code_of(held.first->lookup_fresh(held.directory, long_name)) == Code::kNameTooLong);
  const FileId e = held.first->lookup(held.directory, "e")->id;
  auto inside = held.first->create(e, "b", writing(), {});
  REQUIRE((*inside)->close().has_value());
  CHECK(held.first->remove(held.directory, "e", true).error().code == Code::kNotEmpty);
  msg::Rename change{{}, held.directory, "a", held.directory, "e"};
  CHECK(held.first->rename(change).error().code == Code::kIsDirectory);
  change.to_name = "c";
  change.no_replace = true;
  REQUIRE(held.first->rename(change) == 1U);
  REQUIRE(held.first->remove(e, "b", false) == 0U);
  REQUIRE(held.first->remove(held.directory, "e", true) == 0U);
  CHECK(held.is_held());
}

TEST_CASE("a new file in a held directory gets a session with its first byte") {
  Held held;
  const auto bytes = random_bytes(300000, 1);
  auto file = held.first->create(held.directory, "a", writing(), {0640, 3, 4});
  REQUIRE(file.has_value());
  CHECK((*file)->attributes().version == 0);
  CHECK((*file)->dirty());
  REQUIRE((*file)->write(0, bytes).has_value());
  auto second = held.pool.connect();
  REQUIRE((*file)->close().has_value());
  CHECK(held.first->lookup(held.directory, "a")->size_bytes == bytes.size());
  CHECK(held.is_held());
  const auto seen = second->lookup_fresh(held.directory, "a");
  REQUIRE(seen.has_value());
  CHECK(seen->size_bytes == bytes.size());
  CHECK(seen->mode == 0640);
  CHECK(seen->id == (held.first->lookup(held.directory, "a")->id));
}

TEST_CASE("an open file without bytes outlives the lease, a rename and its name") {
  Held held;
  auto second = held.pool.connect();
  auto file = held.first->create(held.directory, "a", writing(), {});
  REQUIRE(file.has_value());
  SECTION("the directory is recalled") {
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    REQUIRE((*file)->close().has_value());
    CHECK(second->lookup_fresh(held.directory, "a")->size_bytes == 1000);
  }
  SECTION("the directory is recalled, and the file stays empty") {
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
    REQUIRE((*file)->close().has_value());
    CHECK(second->lookup_fresh(held.directory, "a")->size_bytes == 0);
  }
  SECTION("it is renamed") {
    REQUIRE(held.first->rename({{}, held.directory, "a", held.directory, "b"}).has_value());
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    REQUIRE((*file)->close().has_value());
    CHECK(second->lookup_fresh(held.directory, "b")->size_bytes == 1000);
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
  }
  SECTION("it is removed") {
    REQUIRE(held.first->remove(held.directory, "a", false).has_value());
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    std::vector<std::byte> out(1000);
    CHECK((*file)->read(0, out) == 1000U);
    CHECK(code_of(held.first->lookup(held.directory, "a")) == Code::kNotFound);
    (void)(*file)->close();
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
  }
  SECTION("it is opened again") {
    const auto found = held.first->lookup(held.directory, "a");
    REQUIRE(found.has_value());
    auto other = held.first->open(found->id, reading());
    REQUIRE(other.has_value());
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    CHECK((*other)->attributes().size_bytes == 1000);
    REQUIRE((*file)->close().has_value());
  }
  SECTION("it is dropped") {
    file->reset();
    CHECK(code_of(held.first->lookup(held.directory, "a")) == Code::kNotFound);
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
  }
}

TEST_CASE("a file whose session ends without a version is not there any more") {
  Held held;
  auto file = held.first->create(held.directory, "a", writing(), {});
  REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
  (*file)->abort();
  file->reset();
  CHECK(code_of(held.first->lookup(held.directory, "a")) == Code::kNotFound);
  held.make("a");
  CHECK(held.first->lookup(held.directory, "a")->version == 1);
}

TEST_CASE("a change that no batch can have returns the lease first") {
  Held held;
  held.make("a");
  const FileId a = held.first->lookup(held.directory, "a")->id;
  auto second = held.pool.connect();
  SECTION("a hard link") { CHECK(held.first->make_link(a, held.directory, "b")->link_count == 2); }
  SECTION("a special file") {
    REQUIRE(held.first->make_node(held.directory, "b", FileType::kFifo, {}, 0).has_value());
  }
  SECTION("an image") {
    auto file = held.first->create(held.directory, "app.N0.T1", writing(), {});
    REQUIRE((*file)->write(0, random_bytes(1000, 1)).has_value());
    REQUIRE((*file)->close().has_value());
  }
  SECTION("a rename of a directory") {
    REQUIRE(held.first->make_directory(held.directory, "e", {}).has_value());
    REQUIRE(held.first->rename({{}, held.directory, "e", kRootFile, "e"}).has_value());
    CHECK(second->lookup_fresh(kRootFile, "e").has_value());
  }
  SECTION("a rename into a directory that is not held") {
    REQUIRE(held.first->make_directory(kRootFile, "other", {}).has_value());
    const FileId other = held.first->lookup(kRootFile, "other")->id;
    REQUIRE(held.first->rename({{}, held.directory, "a", other, "a"}) == 1U);
    CHECK(second->lookup_fresh(other, "a").has_value());
  }
  CHECK_FALSE(held.is_held());
}

TEST_CASE("a rename of a directory returns the leases that it concerns, and keeps the others") {
  Held held;
  const auto make = [&](FileId parent, std::string_view name) {
    const auto made = held.first->make_directory(parent, name, {0755, 1, 2});
    REQUIRE(made.has_value());
    return made->id;
  };
  const FileId above = make(held.directory, "above");
  const FileId moved = make(above, "moved");
  const FileId below = make(moved, "below");
  held.make_in(below, "a");
  auto open = held.first->create(below, "open", writing(), {});
  REQUIRE(open.has_value());
  REQUIRE(held.is_held_here(below));
  REQUIRE(held.first->rename({{}, above, "moved", above, "to"}).has_value());
  CHECK(held.is_held_here(held.directory));
  for (const FileId one : {above, moved, below}) CHECK_FALSE(held.is_held_here(one));
  CHECK(held.first->lookup(above, "to")->id == moved);
  CHECK(code_of(held.first->lookup(above, "moved")) == Code::kNotFound);
  REQUIRE((*open)->write(0, random_bytes(1000, 1)).has_value());
  REQUIRE((*open)->close().has_value());
  CHECK(held.is_held_here(held.directory));
  auto second = held.pool.connect();
  CHECK(second->lookup_fresh(held.directory, "above")->id == above);
  CHECK(second->lookup_fresh(above, "to")->id == moved);
  CHECK(second->lookup_fresh(below, "a")->version == 1);
  CHECK(second->lookup_fresh(below, "open")->size_bytes == 1000);
  CHECK(held.losses() == 0);
}

TEST_CASE("a holder goes on with a manager that was restarted, and loses nothing") {
  Held held;
  for (int i = 0; i < 20; ++i) held.make("f" + std::to_string(i));
  auto open = held.first->create(held.directory, "open", writing(), {});
  held.pool.restart_manager([&] { held.pool.clock.now(); });
  for (int i = 20; i < 40; ++i) held.make("f" + std::to_string(i));
  REQUIRE((*open)->write(0, random_bytes(1000, 1)).has_value());
  REQUIRE((*open)->close().has_value());
  auto second = held.pool.connect();
  for (int i = 0; i < 40; ++i) {
    INFO(i);
    CHECK(second->lookup_fresh(held.directory, "f" + std::to_string(i)).has_value());
  }
  CHECK(second->lookup_fresh(held.directory, "open")->size_bytes == 1000);
}

TEST_CASE("lost changes fail once, at the next open of each file and at fsync of the directory") {
  StoppableClock own;
  Held held(&own);
  held.make("kept");
  REQUIRE(sync_names(*held.first, held.directory).has_value());
  own.stop();  // the batch is not sent by its age
  held.make("a");
  const FileId a = held.first->lookup(held.directory, "a")->id;
  REQUIRE(held.first->remove(held.directory, "kept", false).has_value());
  auto second = held.pool.connect();
  {
    // The client's threads wait for the lock, as a stopped process does nothing.
    const Lock lock(dynamic_cast<BlockingFilesystem&>(*held.first).engine().shared().mutex);
    CHECK(code_of(second->lookup_fresh(held.directory, "a")) == Code::kNotFound);
    CHECK_FALSE(held.is_held());
  }
  own.go_on();
  for (int i = 0; i < 1000 && held.first->lookup_fresh(held.directory, "a").has_value(); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  CHECK(code_of(held.first->lookup_fresh(held.directory, "a")) == Code::kNotFound);
  CHECK(held.first->lookup_fresh(held.directory, "kept").has_value());
  const auto once = held.first->open(a, reading());
  REQUIRE_FALSE(once.has_value());
  CHECK(once.error().code == Code::kFenced);
  const auto again = held.first->open(a, reading());
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().code == Code::kStale);  // the pool has never had the file
  CHECK_FALSE(sync_names(*held.first, held.directory).has_value());
  CHECK(sync_names(*held.first, held.directory).has_value());
  held.make("a");
  CHECK(second->lookup_fresh(held.directory, "a").has_value());
}

TEST_CASE(
    "calls about a held directory fail while the manager is silent, and go on with the next") {
  Held held;
  held.make("a");
  held.pool.restart_manager([&] {
    std::this_thread::sleep_for(200ms);  // until the client has noticed
    const auto began = std::chrono::steady_clock::now();
    const auto found = held.first->lookup(held.directory, "a");
    REQUIRE_FALSE(found.has_value());
    CHECK(std::chrono::steady_clock::now() - began < 40s);
    const auto asked = std::chrono::steady_clock::now();
    CHECK_FALSE(held.first->lookup(held.directory, "a").has_value());
    CHECK(std::chrono::steady_clock::now() - asked < 1s);  // it does not wait again
  });
  for (int i = 0; i < 1000 && !held.first->lookup(held.directory, "a"); ++i) {
    std::this_thread::sleep_for(10ms);
  }
  CHECK(held.first->lookup(held.directory, "a").has_value());
}

TEST_CASE("fsync of a directory waits for the journal, and a change does not") {
  Held held;
  held.pool.delay_journal(300ms);
  const auto began = std::chrono::steady_clock::now();
  held.make("a");
  CHECK(std::chrono::steady_clock::now() - began < 200ms);
  REQUIRE(sync_names(*held.first, held.directory).has_value());
  CHECK(std::chrono::steady_clock::now() - began >= 250ms);
  held.pool.delay_journal({});
}

TEST_CASE("fsync of an open file without bytes waits for the journal") {
  Held held;
  auto file = held.first->create(held.directory, "a", writing(), {});
  REQUIRE(file.has_value());
  held.pool.delay_journal(300ms);
  const auto began = std::chrono::steady_clock::now();
  REQUIRE((*file)->sync().has_value());
  REQUIRE(sync_names(*held.first, (*file)->id()).has_value());
  CHECK(std::chrono::steady_clock::now() - began >= 250ms);
  CHECK_FALSE((*file)->dirty());
  held.pool.delay_journal({});
  CHECK(held.pool.connect()->lookup_fresh(held.directory, "a")->id == (*file)->id());
}

TEST_CASE("changes wait while an earlier change is not in the journal for long") {
  Held held;
  held.pool.delay_journal(500ms);
  const auto began = std::chrono::steady_clock::now();
  int answered = 0;
  for (; std::chrono::steady_clock::now() - began < 300ms; ++answered) {
    held.make("f" + std::to_string(answered));
    std::this_thread::sleep_for(10ms);
  }
  CHECK(std::chrono::steady_clock::now() - began >= 450ms);
  CHECK(answered < 20);
  held.pool.delay_journal({});
}

TEST_CASE("look-ups do not wait for an earlier change") {
  Held held;
  held.pool.delay_journal(1s);
  held.make("a");
  std::this_thread::sleep_for(2 * NameBatches::kUnsyncedAgeMax);
  const auto began = std::chrono::steady_clock::now();
  CHECK(held.first->lookup(held.directory, "a").has_value());
  CHECK(held.first->read_directory(held.directory)->size() == 1);
  CHECK(std::chrono::steady_clock::now() - began < 400ms);
  held.pool.delay_journal({});
}

TEST_CASE("the last changes of a client are stored when it ends") {
  Held held;
  for (int i = 0; i < 50; ++i) held.make("f" + std::to_string(i));
  held.first.reset();
  auto second = held.pool.connect();
  CHECK(second->read_directory(held.directory)->size() == 50);
}

TEST_CASE("threads that change names in a held directory do not get in each other's way") {
  Held held;
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> failed{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string name = "t" + std::to_string(t) + "." + std::to_string(i);
        auto file = held.first->create(held.directory, name, writing(), {});
        if (!file || !(*file)->close()) ++failed;
        if (i % 3 == 0 && !held.first->remove(held.directory, name, false)) ++failed;
      }
    });
  }
  auto second = held.pool.connect();
  for (int i = 0; i < 5; ++i) {
    if (!second->read_directory(held.directory)) ++failed;
    std::this_thread::sleep_for(20ms);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(second->read_directory(held.directory)->size() == 4 * 66);
}

}  // namespace
}  // namespace stdchk::client::test
