#pragma once

#include <cstddef>

#include "core/base/clock.h"
#include "core/messages/messages.h"

namespace stdchk::test {

/// Requests, then their replies, then notices, then a reply that is an error.
inline constexpr std::size_t kKinds =
    2 * std::variant_size_v<msg::AnyRequest> + std::variant_size_v<msg::AnyNotice> + 1;

/// A valid message of that kind with every field set to something.
msg::Envelope random_message(Prng& prng, std::size_t kind);

}  // namespace stdchk::test
