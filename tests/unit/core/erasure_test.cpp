#include "core/chunk/erasure.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>

#include "core/base/clock.h"
#include "tests/support/catch.h"

using namespace stdchk;

namespace {

constexpr std::size_t kBytes = 4096 + StripeCoder::kStep;

/// The aligned blocks of one stripe.
struct Blocks {
  explicit Blocks(std::size_t count)
      : memory(static_cast<std::byte*>(std::aligned_alloc(64, count * kBytes)), &std::free) {
    for (std::size_t i = 0; i < count; ++i) all.push_back(memory.get() + i * kBytes);
  }
  std::vector<std::byte*> pick(const std::vector<std::uint8_t>& numbers) const {
    std::vector<std::byte*> out;
    for (const std::uint8_t number : numbers) out.push_back(all[number]);
    return out;
  }
  std::unique_ptr<std::byte, void (*)(void*)> memory;
  std::vector<std::byte*> all;
};

std::vector<std::uint8_t> numbers(std::uint32_t first, std::uint32_t end) {
  std::vector<std::uint8_t> out(end - first);
  std::iota(out.begin(), out.end(), static_cast<std::uint8_t>(first));
  return out;
}

/// A stripe of random data with the coder's parity.
Blocks stripe(std::uint32_t data, std::uint32_t parity, Prng& prng) {
  Blocks out(data + parity);
  for (std::uint32_t i = 0; i < data; ++i) {
    for (std::size_t k = 0; k < kBytes; ++k) out.all[i][k] = static_cast<std::byte>(prng.next());
  }
  const auto from = numbers(0, data);
  const auto to = numbers(data, data + parity);
  const auto coder = StripeCoder::create(data, parity, from, to);
  REQUIRE(coder);
  coder->run(out.pick(from), out.pick(to), kBytes);
  return out;
}

bool is_same(const std::byte* a, const std::byte* b) { return std::memcmp(a, b, kBytes) == 0; }

}  // namespace

TEST_CASE("any blocks of a stripe, as many as there is data, give all others") {
  Prng prng(1);
  for (const auto& [data, parity] : {std::pair{1U, 1U},
                                     {1U, 2U},
                                     {1U, 4U},
                                     {2U, 1U},
                                     {3U, 2U},
                                     {4U, 1U},
                                     {4U, 2U},
                                     {5U, 3U},
                                     {8U, 2U},
                                     {7U, 4U},
                                     {16U, 4U}}) {
    INFO(data << " and " << parity);
    const Blocks blocks = stripe(data, parity, prng);
    for (int trial = 0; trial < 60; ++trial) {
      auto order = numbers(0, data + parity);
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[prng.below(i)]);
      const std::vector<std::uint8_t> have(order.begin(), order.begin() + data);
      const std::size_t count = 1 + prng.below(parity);
      const std::vector<std::uint8_t> lost(order.begin() + data,
                                           order.begin() + data + static_cast<int>(count));
      const auto coder = StripeCoder::create(data, parity, have, lost);
      REQUIRE(coder);
      Blocks made(count);
      coder->run(blocks.pick(have), made.all, kBytes);
      for (std::size_t i = 0; i < count; ++i) CHECK(is_same(made.all[i], blocks.all[lost[i]]));
    }
  }
}

TEST_CASE(
    "one parity block is the XOR of the data, and the second weighs them with powers of two") {
  Prng prng(2);
  const Blocks blocks = stripe(5, 2, prng);
  for (std::size_t k = 0; k < kBytes; ++k) {
    unsigned p = 0;
    unsigned q = 0;
    for (std::size_t i = 5; i-- > 0;) {
      const unsigned byte = std::to_integer<unsigned>(blocks.all[i][k]);
      p ^= byte;
      q = (q << 1 ^ ((q & 0x80) != 0 ? 0x11DU : 0U)) ^ byte;
    }
    REQUIRE(std::to_integer<unsigned>(blocks.all[5][k]) == p);
    REQUIRE(std::to_integer<unsigned>(blocks.all[6][k]) == q);
  }
}

TEST_CASE("the blocks of stripes that were stored stay what they were") {
  // The last two bytes of three data blocks are 01 02, 04 08, 10 20 (docs/internals/formats.md).
  const auto parity_of = [](std::uint32_t parity) {
    Blocks blocks(3 + parity);
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t k = 0; k < kBytes; ++k) {
        blocks.all[i][k] = static_cast<std::byte>(1U << (2 * i + k % 2));
      }
    }
    const auto from = numbers(0, 3);
    const auto to = numbers(3, 3 + parity);
    StripeCoder::create(3, parity, from, to)->run(blocks.pick(from), blocks.pick(to), kBytes);
    std::vector<unsigned> out;
    for (std::uint32_t i = 0; i < parity; ++i) {
      out.push_back(std::to_integer<unsigned>(blocks.all[3 + i][0]) << 8 |
                    std::to_integer<unsigned>(blocks.all[3 + i][1]));
    }
    return out;
  };
  CHECK(parity_of(1) == std::vector<unsigned>{0x152A});
  CHECK(parity_of(2) == std::vector<unsigned>{0x152A, 0x4992});
  CHECK(parity_of(3) == std::vector<unsigned>{0xE6D1, 0x1224, 0xC98F});
}

TEST_CASE("stripes that cannot be are refused") {
  using Numbers = std::vector<std::uint8_t>;
  CHECK_FALSE(StripeCoder::create(2, 1, Numbers{0, 0}, Numbers{2}));
  CHECK_FALSE(StripeCoder::create(2, 1, Numbers{0, 3}, Numbers{2}));
  CHECK_FALSE(StripeCoder::create(2, 1, Numbers{0}, Numbers{2}));
  CHECK_FALSE(StripeCoder::create(2, 1, Numbers{0, 1}, Numbers{}));
  CHECK_FALSE(StripeCoder::create(0, 1, Numbers{}, Numbers{0}));
  CHECK_FALSE(StripeCoder::create(17, 1, numbers(0, 17), Numbers{17}));
  CHECK_FALSE(StripeCoder::create(2, 5, Numbers{0, 1}, Numbers{2}));
}
