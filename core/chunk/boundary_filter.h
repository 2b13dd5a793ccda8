#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// The internals of core/chunk/chunker.h: the filter that few positions pass, for each vector
/// width.
namespace stdchk::boundary {

/// Number of bytes before a position that its filter reads.
inline constexpr std::size_t kReach = 22;
/// Distance between bytes that are combined. Not a multiple of a number's size, so that the
/// combined bytes have different places in neighbouring numbers.
inline constexpr std::ptrdiff_t kStride = 9;

// Odd, so that each bit of the window can change the sum. They are signed 16-bit numbers because
// vpmaddwd multiplies such numbers; modulo 2^16 the result is the same.
inline constexpr std::int16_t kFactors[2] = {0x6A4F, static_cast<std::int16_t>(0xA2C5)};
inline constexpr std::uint16_t kOffset = 0x9E37;
inline constexpr std::uint16_t kPass = 32;  ///< out of 2^16

template <class T>
T load(const std::byte* at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// Returns true when the position passes the filter; `end` is the first byte behind its window.
inline bool passes(const std::byte* end) {
  const std::byte* const at = end - 4;
  const std::uint32_t word = load<std::uint32_t>(at) ^ load<std::uint32_t>(at - kStride) ^
                             load<std::uint32_t>(at - 2 * kStride);
  const std::uint32_t sum = kOffset + (word & 0xFFFF) * static_cast<std::uint16_t>(kFactors[0]) +
                            (word >> 16) * static_cast<std::uint16_t>(kFactors[1]);
  return static_cast<std::uint16_t>(sum) < kPass;
}

/// Mixes all bits of the window's 32 bytes into 64: folded products with odd numbers (from the
/// digits of pi).
inline std::uint64_t mix(const std::byte* end) {
  std::uint64_t sum = load<std::uint64_t>(end - 32) * 0x243F6A8885A308D3;
  sum = std::rotl(sum, 29) ^ load<std::uint64_t>(end - 24) * 0x13198A2E03707345;
  sum = std::rotl(sum, 29) ^ load<std::uint64_t>(end - 16) * 0xA4093822299F31D1;
  sum = std::rotl(sum, 29) ^ load<std::uint64_t>(end - 8) * 0x082EFA98EC4E6C89;
  sum ^= sum >> 32;
  return sum * 0x452821E638D01377;
}

/// Result of searching [from, to). If `found`, `position` is the first position that passes the
/// filter and has a mix below `below`. Otherwise it is the first unexamined position, less than one
/// step before `to`.
struct Seen {
  std::size_t position = 0;
  bool found = false;
};
using Search = Seen (*)(const std::byte* bytes, std::size_t from, std::size_t to,
                        std::uint64_t below);
Seen search_avx2(const std::byte* bytes, std::size_t from, std::size_t to, std::uint64_t below);
Seen search_avx512(const std::byte* bytes, std::size_t from, std::size_t to, std::uint64_t below);
inline constexpr std::size_t kStepAvx2 = 32;
inline constexpr std::size_t kStepAvx512 = 64;

}  // namespace stdchk::boundary
