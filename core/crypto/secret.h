#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "core/values/types.h"

/// Keys, derived keys, MACs and random bytes, by OpenSSL's libcrypto (docs/decisions/0013).
namespace stdchk {

/// A Secret is 256 bits that only members of a pool know: the pool's own, or a key derived of it.
struct Secret {
  std::array<std::byte, 32> bytes{};
};
/// Compares in a time that does not depend on the bytes.
bool equal(ByteSpan a, ByteSpan b);
inline bool operator==(const Secret& a, const Secret& b) { return equal(a.bytes, b.bytes); }

/// Derives a key for one use: HKDF-Expand of one block with SHA-256 (RFC 5869). The step of
/// extraction is left out, as section 3.3 allows, because `from` is random already. Keys of
/// different uses and contexts are independent. Texts of `use` must be prefix-free.
Secret derive(const Secret& from, std::string_view use, ByteSpan context);

using Digest = std::array<std::byte, 32>;
/// HMAC-SHA-256 (RFC 2104) of the parts, one behind the other.
Digest keyed_digest(const Secret& key, std::initializer_list<ByteSpan> parts);

/// Fills `bytes` from the operating system's generator. Ends the process if the generator fails.
void fill_random(MutableByteSpan bytes);

}  // namespace stdchk
