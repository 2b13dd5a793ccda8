#pragma once

#include <string_view>

#include "core/crypto/secret.h"
#include "core/values/types.h"

/// How a benefactor knows that its manager has granted a part of the arena to a client.
///
/// The manager and the benefactor share a key: Keyring::own(kGrantKeyUse) of the benefactor. The
/// manager puts a MAC by that key into each grant. The client presents the grant to the benefactor,
/// which computes the MAC again. Neither keeps a list for that, so a restarted manager and a
/// restarted benefactor need none.
namespace stdchk::transport::secure {

inline constexpr std::string_view kGrantKeyUse = "grants";

/// Sets the MAC of a grant to `client`. It covers client, benefactor, number, offset and length:
/// the first 128 bits of HMAC-SHA-256.
void prove(const Secret& key, ClientId client, Grant& grant);
/// Returns true when a holder of the key has made this grant to `client`. The time of the
/// comparison does not depend on the bytes.
bool is_proven(const Secret& key, ClientId client, const Grant& grant);

}  // namespace stdchk::transport::secure
