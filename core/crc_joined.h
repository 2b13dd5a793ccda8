#pragma once

#include <cstdint>

namespace stdchk {

/// The crc32c() of two contents side by side, of which only their own and the second one's length
/// are known.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint32_t second_bytes);

}  // namespace stdchk
