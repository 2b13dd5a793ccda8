#include "core/chunk/crc_joined.h"

#include <array>
#include <cstddef>

namespace stdchk {
namespace {

// Polynomials over GF(2) modulo Castagnoli's. As in a reflected CRC, the highest bit is the
// coefficient of x^0. Appending n zero bits multiplies a CRC by x^n (M. Adler, crc32_combine of
// zlib).
constexpr std::uint32_t kOne = 1U << 31;
constexpr std::uint32_t kX = kOne >> 1;
constexpr std::uint32_t kReduction = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t a) {
  return (a & 1) != 0 ? (a >> 1) ^ kReduction : a >> 1;
}

constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum = 0;
  for (; a != 0; a <<= 1, b = times_x(b)) sum ^= (a & kOne) != 0 ? b : 0;
  return sum;
}

/// x^(8 * 2^i).
constexpr auto kShifts = [] {
  std::array<std::uint32_t, 32> shifts{};
  std::uint32_t power = product(product(kX, kX), product(kX, kX));
  for (std::uint32_t& each : shifts) each = power = product(power, power);
  return shifts;
}();

}  // namespace

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint32_t second_bytes) {
  for (std::size_t i = 0; second_bytes != 0; second_bytes >>= 1, ++i) {
    if ((second_bytes & 1) != 0) first = product(kShifts[i], first);
  }
  return first ^ second;
}

}  // namespace stdchk
