#pragma once

#include <capnp/common.h>
#include <kj/exception.h>

#include <cstddef>

#include "core/base/limits.h"
#include "core/base/result.h"

/// The frame of a message, for encode.cpp and decode.cpp.
namespace stdchk::msg {

// A message is one segment behind Cap'n Proto's stream frame: segments - 1 and the segment's words,
// both 32-bit little endian.
inline constexpr std::size_t kWordBytes = sizeof(capnp::word);
inline constexpr std::size_t kFrameBytes = 8;
inline constexpr std::size_t kSegmentWordsMax =
    (limits::kMessageBytesMax - kFrameBytes) / kWordBytes;
static_assert(kWordBytes == 8 && limits::kMessageBytesMax % kWordBytes == 0);

/// The adapter for kj's exceptions: calls `work`, which may throw them, and answers `otherwise`
/// then.
template <class Work>
Status without_exceptions(Code otherwise, const char* where, Work work) {
  try {
    return work();
  } catch (const kj::Exception&) {
    return fail(otherwise, where);
  }
}

}  // namespace stdchk::msg
