// Tests images that benefactors cannot read, with a real manager and real benefactors.
#include <filesystem>

#include "core/chunk/sealed_chunk.h"
#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

constexpr std::uint64_t kArena = 64 * limits::kMiB;

Options with_key(int seed = 1, bool encrypts = true) {
  Options options;
  options.key.emplace();
  options.key->bytes.fill(static_cast<std::byte>(seed));
  options.encrypts = encrypts;
  return options;
}

void write_image(Filesystem& filesystem, const std::string& name, ByteSpan bytes,
                 std::size_t step = 100000) {
  auto file = filesystem.create(kRootFile, name, writing(), Owner{});
  REQUIRE(file.has_value());
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const ByteSpan part = bytes.subspan(at, std::min(step, bytes.size() - at));
    REQUIRE((*file)->write(at, part).has_value());
  }
  REQUIRE((*file)->close().has_value());
}

ChunkMap map_of(Filesystem& filesystem, const std::string& name) {
  const auto attributes = filesystem.lookup_fresh(kRootFile, name);
  REQUIRE(attributes.has_value());
  auto found = filesystem.map(attributes->id);
  REQUIRE(found.has_value());
  return found->second;
}

/// Counts how often a part of `bytes` lies in a benefactor's memory, and corrupts it there.
std::size_t found_in_memory(Pool& pool, ByteSpan bytes) {
  return pool.spoil(bytes.subspan(bytes.size() / 2, 64));
}

Code code_of_reading(Filesystem& filesystem, const std::string& name) {
  const auto attributes = filesystem.lookup_fresh(kRootFile, name);
  REQUIRE(attributes.has_value());
  auto file = filesystem.open(attributes->id, reading());
  REQUIRE(file.has_value());
  std::vector<std::byte> bytes(1000);
  const auto count = (*file)->read(0, bytes);
  return count.has_value() ? Code{} : count.error().code;
}

}  // namespace

TEST_CASE("an encrypted image is read by who has the key, and nowhere in a benefactor's memory") {
  const auto [naming, content_cuts] =
      GENERATE(std::pair(Naming::kOff, false), std::pair(Naming::kAuto, false),
               std::pair(Naming::kOn, false), std::pair(Naming::kOn, true));
  Pool pool(3, kArena, naming);
  Options options = with_key();
  options.content_cuts = content_cuts;
  auto one = pool.connect(options);
  auto reader = pool.connect(with_key(1, false));
  const auto bytes = random_bytes(5 * limits::kMiB + 12345, 1);
  write_image(*one, "app.N0.T1", bytes);
  CHECK(read_all(*one, "app.N0.T1") == bytes);
  CHECK(read_all(*reader, "app.N0.T1") == bytes);
  CHECK(found_in_memory(pool, bytes) == 0);
  for (const Chunk& chunk : map_of(*one, "app.N0.T1").chunks) CHECK(is_sealed(chunk.name));
  // Control: the search does find unencrypted bytes.
  auto plain = pool.connect();
  const auto others = random_bytes(limits::kMiB, 2);
  write_image(*plain, "app.N1.T1", others);
  CHECK(found_in_memory(pool, others) == 1);
}

TEST_CASE("without the key, or with another one, an encrypted image cannot be read") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect(with_key());
  write_image(*one, "f", random_bytes(limits::kMiB, 1));
  auto without = pool.connect();
  auto other = pool.connect(with_key(2));
  CHECK(code_of_reading(*without, "f") == Code::kPermission);
  CHECK(code_of_reading(*other, "f") == Code::kPermission);
  // Clients without the key can still write and read their own files.
  const auto bytes = random_bytes(300000, 2);
  write_image(*without, "g", bytes);
  CHECK(read_all(*without, "g") == bytes);
  CHECK(read_all(*one, "g") == bytes);
}

TEST_CASE("equal chunks are stored once although they are encrypted, by one client or by two") {
  Pool pool(3, kArena, Naming::kOn);
  auto one = pool.connect(with_key());
  auto two = pool.connect(with_key());
  const auto bytes = random_bytes(4 * limits::kMiB, 1);
  write_image(*one, "app.N0.T1", bytes);
  write_image(*one, "app.N0.T2", bytes);
  write_image(*two, "app.N7.T1", bytes);
  const auto first = map_of(*one, "app.N0.T1").chunks;
  CHECK(first.size() == bytes.size() / kChunk);
  CHECK(map_of(*one, "app.N0.T2").chunks == first);
  CHECK(map_of(*one, "app.N7.T1").chunks == first);
  CHECK(read_all(*two, "app.N0.T2") == bytes);
}

TEST_CASE("what a session has written is read back before and after it is stored") {
  Pool pool(2, kArena, GENERATE(Naming::kOff, Naming::kAuto));
  auto one = pool.connect(with_key());
  auto file = one->create(kRootFile, "f", writing(), Owner{});
  REQUIRE(file.has_value());
  std::vector<std::byte> model;
  Prng prng(3);
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t at = prng.below(3 * limits::kMiB);
    const auto bytes = random_bytes(1 + prng.below(100000), static_cast<std::uint64_t>(i));
    model.resize(std::max<std::size_t>(model.size(), at + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), model.begin() + static_cast<std::ptrdiff_t>(at));
    REQUIRE((*file)->write(at, bytes).has_value());
    if (i % 50 == 20) REQUIRE((*file)->sync().has_value());
    if (i % 50 == 40) REQUIRE((*file)->commit().has_value());
    const std::uint64_t from = prng.below(model.size());
    std::vector<std::byte> got(std::min<std::size_t>(50000, model.size() - from));
    REQUIRE(*(*file)->read(from, got) == got.size());
    REQUIRE(std::equal(got.begin(), got.end(), model.begin() + static_cast<std::ptrdiff_t>(from)));
  }
  REQUIRE((*file)->close().has_value());
  CHECK(read_all(*one, "f") == model);
}

TEST_CASE("an encrypted image is not drained, and does not appear in the drain directory") {
  const std::string drain = std::filesystem::temp_directory_path() / "stdchk-encryption-test";
  std::filesystem::remove_all(drain);
  std::filesystem::create_directory(drain);
  {
    Pool pool(2, kArena, Naming::kOn, drain);
    auto one = pool.connect(with_key());
    auto plain = pool.connect();
    write_image(*one, "sealed", random_bytes(limits::kMiB, 1));
    write_image(*plain, "plain", random_bytes(limits::kMiB, 2));
    for (int i = 0; i < 1000 && !std::filesystem::exists(drain + "/plain"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(std::filesystem::exists(drain + "/plain"));
    CHECK_FALSE(std::filesystem::exists(drain + "/sealed"));
    const auto attributes = plain->lookup_fresh(kRootFile, "sealed");
    REQUIRE(attributes.has_value());
    CHECK(attributes->drain == DrainState::kFailed);
  }
  std::filesystem::remove_all(drain);
}

}  // namespace stdchk::client::test
