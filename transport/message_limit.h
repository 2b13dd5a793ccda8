#pragma once

#include <cstddef>

#include "core/limits.h"
#include "core/sealer.h"

namespace stdchk::transport {

/// What a link of any fabric carries in one message: the longest message, sealed.
inline constexpr std::size_t kMessageBytesMax = limits::kMessageBytesMax + Sealer::kTagBytes;

}  // namespace stdchk::transport
