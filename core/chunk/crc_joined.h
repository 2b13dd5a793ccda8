#pragma once

#include <cstdint>

namespace stdchk {

/// Returns the crc32c() of two contents, one behind the other, from their own CRCs and the second
/// one's length.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint32_t second_bytes);

}  // namespace stdchk
