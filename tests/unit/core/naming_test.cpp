#include "core/chunk/naming.h"

#include <deque>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/chunk/crc_joined.h"
#include "tests/support/catch.h"

using namespace stdchk;

namespace {

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Byte i is (7 i + 3) mod 256. Another program computed the expected names from these bytes.
std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((7 * i + 3) & 0xFF);
  return bytes;
}

}  // namespace

TEST_CASE("a chunk's name is the documented tree of SHA-256") {
  CHECK(to_hex(name_chunk({})) ==
        "b2161f3e9164f221896cd74690ee6096d286f1cbec7835050b87a503966e866b");
  CHECK(to_hex(name_chunk(bytes_of("abc"))) ==
        "e911cec3a4514e8e750585bd618f42604510f271c5213e581948cecbf8b3055b");
  CHECK(to_hex(name_chunk(pattern(16384))) ==
        "a110e8180948b3df169495a2446f2782d8a0c0086dfe959fbfb831f6e0a7d0ab");
  CHECK(to_hex(name_chunk(pattern(16385))) ==
        "612d8de9148f0e14534cae4c4e432f9ed74567e2c782adb326f8fb07cfef1627");
  CHECK(to_hex(name_chunk(pattern(1 << 20))) ==
        "205d34a074fc9d92fe1cfdecac9395d92d9fc6e4fa80460ea761774012ef7a47");
}

TEST_CASE("every engine gives the same name") {
  Namer namer;
  INFO(namer.engine());
  Prng prng(3);
  std::vector<std::byte> bytes(16 * limits::kMiB + 64);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next() >> 56);
  std::vector<std::size_t> sizes = {0,     1,     63,    64,           16383,           16384,
                                    16385, 49152, 65536, limits::kMiB, limits::kMiB + 1};
  for (int i = 0; i < 30; ++i) sizes.push_back(prng.below(2 * limits::kMiB));
  sizes.push_back(16 * limits::kMiB);
  for (const std::size_t size : sizes) {
    // The source address may be unaligned.
    const ByteSpan content = ByteSpan(bytes).subspan(prng.below(64), size);
    INFO("size " << size);
    CHECK(namer.name(content) == name_chunk(content));
  }
}

TEST_CASE("chunks in two pieces, and several at once, get the names that they get alone") {
  Namer namer;
  Prng prng(8);
  std::vector<std::byte> bytes(4 * limits::kMiB);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next() >> 56);
  for (int round = 0; round < 40; ++round) {
    std::vector<ChunkPieces> chunks;
    std::vector<ChunkName> expected;
    std::deque<std::vector<std::byte>> apart;  // keeps the pieces from being adjacent
    for (std::uint64_t left = prng.below(9); left > 0; --left) {
      const ByteSpan content =
          ByteSpan(bytes).subspan(prng.below(limits::kMiB), prng.below(200000));
      const std::size_t at = prng.chance(1, 3) ? 0 : prng.below(content.size() + 1);
      const ByteSpan rest = content.subspan(at);
      chunks.push_back({content.first(at), apart.emplace_back(rest.begin(), rest.end())});
      expected.push_back(name_chunk(content));
    }
    std::vector<ChunkName> names(chunks.size());
    namer.name(chunks, names);
    CHECK(names == expected);
  }
}

TEST_CASE("the name tells contents apart that differ in one bit or in length") {
  Namer namer;
  auto bytes = pattern(limits::kMiB);
  const ChunkName name = namer.name(bytes);
  CHECK(name.is_named());
  bytes[777777] ^= std::byte{1};
  CHECK(namer.name(bytes) != name);
  bytes[777777] ^= std::byte{1};
  CHECK(namer.name(bytes) == name);
  CHECK(namer.name(ByteSpan(bytes).first(bytes.size() - 1)) != name);
}

TEST_CASE("crc32c is that of RFC 3720, and goes on where it stopped") {
  CHECK(crc32c(0, {}) == 0);
  CHECK(crc32c(0, bytes_of("123456789")) == 0xE3069283);
  CHECK(crc32c(0, std::vector<std::byte>(32)) == 0x8A9136AA);
  CHECK(crc32c(0, std::vector<std::byte>(32, std::byte{0xFF})) == 0x62A8AB43);
  const auto bytes = pattern(100000);
  const std::uint32_t whole = crc32c(0, bytes);
  for (const std::size_t at : {0U, 1U, 7U, 64U, 99999U, 100000U}) {
    const ByteSpan all(bytes);
    CHECK(crc32c(crc32c(0, all.first(at)), all.subspan(at)) == whole);
  }
}

TEST_CASE("the crc32c of two contents side by side follows from theirs and a length") {
  const auto bytes = pattern((16U << 20) + 5);
  const ByteSpan all(bytes);
  const std::uint32_t whole = crc32c(0, all);
  for (const std::size_t at : {0UL, 1UL, 64UL, 1UL << 20, 12345678UL, all.size() - 1, all.size()}) {
    const ByteSpan rest = all.subspan(at);
    const auto length = static_cast<std::uint32_t>(rest.size());
    CHECK(crc32c_joined(crc32c(0, all.first(at)), crc32c(0, rest), length) == whole);
  }
}
