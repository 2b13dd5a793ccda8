#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "core/crypto/secret.h"
#include "core/values/types.h"

/// Diffie-Hellman over X25519 (RFC 7748), by OpenSSL's libcrypto.
namespace stdchk {

/// An ExchangeKey is the private half of one exchange: 32 random bytes, used once.
struct ExchangeKey {
  std::array<std::byte, 32> bytes{};
};
/// The public half, which is sent to the peer.
using ExchangePublic = std::array<std::byte, 32>;

/// From the operating system's generator.
ExchangeKey new_exchange_key();
ExchangePublic public_of(const ExchangeKey& own);
/// Computes the secret that the two ends share. Returns nothing when the peer's value has a small
/// order: then every own key gives a secret of zeros (RFC 7748, section 6.1).
std::optional<Secret> agree(const ExchangeKey& own, const ExchangePublic& peer);

}  // namespace stdchk
