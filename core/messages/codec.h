#pragma once

#include <vector>

#include "core/messages/messages.h"

namespace stdchk::msg {

/// Encodes into `out` (its old content is dropped, its memory used again). kTooLarge when the
/// message would be longer than limits::kMessageBytesMax.
Status encode(const Envelope& envelope, std::vector<std::byte>& out);

/// Decodes and validates. Any bytes are allowed: bytes that are no message give kMalformed. Needs
/// no alignment of `bytes`.
Result<Envelope> decode(ByteSpan bytes);

}  // namespace stdchk::msg
