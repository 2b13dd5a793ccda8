#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "core/values/types.h"

/// Keys, what is made of them, and random bytes. By OpenSSL's libcrypto (docs/decisions/0013).
namespace stdchk {

/// A Secret is 256 bits that only members of a pool know: the pool's own, or a key derived of it.
struct Secret {
  std::array<std::byte, 32> bytes{};
};
/// Takes the same time wherever they differ.
bool equal(ByteSpan a, ByteSpan b);
inline bool operator==(const Secret& a, const Secret& b) { return equal(a.bytes, b.bytes); }

/// A key for one use: HKDF-Expand of one block with SHA-256 (RFC 5869). Its first step, extraction,
/// is left out as its section 3.3 allows, because `from` is random already. Different uses and
/// contexts have keys that say nothing of each other; no use is the beginning of another one.
Secret derive(const Secret& from, std::string_view use, ByteSpan context);

using Digest = std::array<std::byte, 32>;
/// HMAC-SHA-256 (RFC 2104) of the parts, one behind the other.
Digest keyed_digest(const Secret& key, std::initializer_list<ByteSpan> parts);

/// From the operating system's generator. Ends the process where it has none.
void fill_random(MutableByteSpan bytes);

}  // namespace stdchk
