#include "core/chunk/window_chunking.h"

#include <numeric>
#include <vector>

#include "tests/support/catch.h"

using namespace stdchk;

namespace {

/// The high bytes of a linear congruential generator. Another program computed the expected values
/// from these bytes.
std::vector<std::byte> sample() {
  std::vector<std::byte> bytes;
  std::uint64_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    bytes.push_back(static_cast<std::byte>(state >> 56));
  }
  return bytes;
}

struct Expected {
  WindowHash hash;
  std::size_t window, step;
  unsigned bits;
  std::size_t count;
  std::vector<std::uint64_t> first;
  std::uint64_t sum;  ///< sum of all ends, modulo 1000003
};

}  // namespace

TEST_CASE("the Rabin fingerprint is the remainder of the bytes' polynomial") {
  CHECK(rabin_fingerprint({}) == 0);
  CHECK(rabin_fingerprint(std::as_bytes(std::span("stdchk", 6))) == 0x73746463686B);
  std::vector<std::byte> bytes;
  for (int i = 0; i < 100000; ++i) bytes.push_back(static_cast<std::byte>((7 * i + 3) & 0xFF));
  CHECK(rabin_fingerprint(ByteSpan(bytes).first(64)) == 0xEE50BC53E98E0);
  CHECK(rabin_fingerprint(bytes) == 0x4AC814FB47BD6);
}

TEST_CASE("windows that overlap and windows that do not cut where another program says") {
  const auto bytes = sample();
  const std::vector<Expected> all = {
      {WindowHash::kSha1, 20, 1, 10, 100, {2059, 2235, 2786}, 524295},
      {WindowHash::kSha1, 20, 20, 6, 82, {1160, 1400, 1540}, 93128},
      {WindowHash::kSha1, 64, 1, 12, 25, {4121, 20438, 20608}, 355553},
      {WindowHash::kSha1, 48, 48, 4, 109, {1536, 2448, 3360}, 685121},
      {WindowHash::kRabin, 20, 1, 10, 101, {847, 957, 1188}, 917159},
      {WindowHash::kRabin, 20, 20, 6, 87, {920, 940, 1220}, 364848},
      {WindowHash::kRabin, 64, 1, 12, 19, {22429, 30245, 47340}, 382731},
      {WindowHash::kRabin, 48, 48, 4, 127, {528, 672, 1488}, 288622}};
  for (const Expected& one : all) {
    const auto hashes = window_hashes(bytes, one.hash, one.window, one.step);
    const auto ends = window_ends(hashes, one.window, one.step, one.bits, bytes.size());
    INFO("window " << one.window << ", step " << one.step << ", bits " << one.bits);
    REQUIRE(ends.size() == one.count);
    CHECK(std::vector(ends.begin(), ends.begin() + 3) == one.first);
    CHECK(std::accumulate(ends.begin(), ends.end(), std::uint64_t{0}) % 1000003 == one.sum);
    CHECK(ends.back() == bytes.size());
  }
}

TEST_CASE("a run of zeros is not a boundary everywhere") {
  const std::vector<std::byte> bytes(100000);
  for (const WindowHash hash : {WindowHash::kSha1, WindowHash::kRabin}) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{64}}) {
      const auto hashes = window_hashes(bytes, hash, 64, step);
      CHECK(window_ends(hashes, 64, step, 8, bytes.size()).size() == 1);
    }
  }
}

TEST_CASE("an image shorter than the window is one chunk, an empty one is none") {
  const std::vector<std::byte> bytes(19);
  const auto hashes = window_hashes(bytes, WindowHash::kRabin, 20, 1);
  CHECK(hashes.empty());
  CHECK(window_ends(hashes, 20, 1, 8, bytes.size()) == std::vector<std::uint64_t>{19});
  CHECK(window_ends({}, 20, 1, 8, 0).empty());
}
