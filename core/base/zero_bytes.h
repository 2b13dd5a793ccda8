#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace stdchk {

/// Returns true when all bytes are zeros. Requires at least one byte.
inline bool is_zero(std::span<const std::byte> bytes) {
  return bytes.front() == std::byte{} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace stdchk
