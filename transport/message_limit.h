#pragma once

#include <cstddef>

#include "core/base/limits.h"
#include "core/crypto/sealer.h"

namespace stdchk::transport {

/// The longest message on a link of any transport: the longest message of the system, encrypted.
inline constexpr std::size_t kMessageBytesMax = limits::kMessageBytesMax + Sealer::kTagBytes;

}  // namespace stdchk::transport
