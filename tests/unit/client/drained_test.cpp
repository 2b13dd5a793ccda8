// Tests a small pool that drains: drained images make room, and stay readable.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

constexpr std::uint64_t kArena = 40 * std::uint64_t{kChunk};

/// An empty temporary folder.
struct Folder {
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("stdchk-drained-test." + std::to_string(::getpid()));
};

SessionFigures write(Filesystem& filesystem, std::string_view name, ByteSpan bytes) {
  auto file = filesystem.create(kRootFile, name, writing(true), Owner{});
  REQUIRE(file.has_value());
  REQUIRE((*file)->write(0, bytes).has_value());
  const Status closed = (*file)->close();
  INFO((closed.has_value() ? std::string() : describe(closed.error())));
  REQUIRE(closed.has_value());
  return (*file)->figures();
}

void wait_drained(Filesystem& filesystem, std::string_view name) {
  for (int i = 0; i < 1000; ++i) {
    if (filesystem.lookup_fresh(kRootFile, name)->drain == DrainState::kDrained) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL(std::string(name) + " is not drained");
}

std::unique_ptr<File> open_reading(Filesystem& filesystem, std::string_view name) {
  auto file = filesystem.open(filesystem.lookup_fresh(kRootFile, name)->id, reading());
  REQUIRE(file.has_value());
  return std::move(*file);
}

}  // namespace

TEST_CASE("a file that is in the drain directory only is read on when its name goes") {
  const bool removed = GENERATE(false, true);
  const Folder folder;
  Pool pool(1, kArena, Naming::kOn, folder.path.string());
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(16 * kChunk, 1);
  write(*one, "old", bytes);
  wait_drained(*one, "old");
  for (unsigned i = 0; i < 3; ++i) {
    const std::string name = "new" + std::to_string(i);
    write(*one, name, random_bytes(16 * kChunk, 2 + i));
    wait_drained(*one, name);
  }
  // `begun` has begun to read; `opened` has only opened the file.
  auto begun = open_reading(*one, "old");
  auto opened = open_reading(*two, "old");
  std::vector<std::byte> back(bytes.size());
  REQUIRE(begun->read(0, MutableByteSpan(back).first(100)).has_value());
  if (removed) {
    REQUIRE(one->remove(kRootFile, "old", false).has_value());
  } else {
    REQUIRE(one->rename({{}, kRootFile, "new2", kRootFile, "old", false, false}).has_value());
  }
  for (File* file : {begun.get(), opened.get()}) {
    const auto count = file->read(0, back);
    REQUIRE(count.has_value());
    CHECK(*count == bytes.size());
    CHECK(back == bytes);
    REQUIRE(file->close().has_value());
  }
}

TEST_CASE("the first read of a drained file waits for nothing but its answers") {
  const Folder folder;
  constexpr int kFiles = 30;
  const auto bytes = random_bytes(5000, 1);
  for (int i = 0; i < kFiles; ++i) {
    std::ofstream(folder.path / ("f" + std::to_string(i)), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  }
  Pool pool(1, kArena, Naming::kOn, folder.path.string());
  auto client = pool.connect();
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < kFiles; ++i) CHECK(read_all(*client, "f" + std::to_string(i)) == bytes);
  // A missed wake-up costs 100 ms.
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(50 * kFiles));
}

TEST_CASE("the image that one is compared with makes room for it when the pool is full") {
  const Folder folder;
  Pool pool(1, kArena, Naming::kOn, folder.path.string());
  auto one = pool.connect();
  const auto before = random_bytes(24 * kChunk, 1);
  write(*one, "app.N0.T1", before);
  wait_drained(*one, "app.N0.T1");
  // The next image repeats chunks at its beginning and at its end.
  auto next = random_bytes(24 * kChunk, 2);
  std::copy_n(before.begin(), 4 * kChunk, next.begin());
  std::copy_n(before.end() - 2 * kChunk, 2 * kChunk, next.end() - 2 * kChunk);
  const auto figures = write(*one, "app.N0.T2", next);
  CHECK(figures.bytes_existing >= 4 * kChunk);
  auto fresh = pool.connect();
  CHECK(read_all(*fresh, "app.N0.T2") == next);
  CHECK(read_all(*fresh, "app.N0.T1") == before);
}

TEST_CASE("an image that is written again makes room for itself when the pool is full") {
  const Folder folder;
  Pool pool(1, kArena, Naming::kOff, folder.path.string());
  auto one = pool.connect();
  for (unsigned round = 0; round < 3; ++round) {
    const auto bytes = random_bytes(24 * kChunk, round);
    write(*one, "state", bytes);
    wait_drained(*one, "state");
    auto fresh = pool.connect();
    CHECK(read_all(*fresh, "state") == bytes);
  }
}

}  // namespace stdchk::client::test
