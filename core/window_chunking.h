#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

/// The papers' content-defined chunking, as they describe it (Al-Kiswany et al., "stdchk", ICDCS
/// 2008, section IV.C), to compare with; core/chunker.h is what stdchk stores by.
///
/// A window of m bytes moves over the image in steps of p bytes: p = 1 (overlap) or p = m (no
/// overlap). Where the low k bits of the window's hash are 0, a chunk ends behind the window. There
/// is no shortest and no longest chunk.
namespace stdchk {

enum class WindowHash : std::uint8_t { kSha1, kRabin };

inline constexpr std::size_t kWindowHashBits = 16;

/// The low kWindowHashBits of the hashes of all whole windows, in order. SHA-1: of the digest as
/// one large number, its last two bytes. `window` and `step` from 1 on.
std::vector<std::uint16_t> window_hashes(ByteSpan bytes, WindowHash hash, std::size_t window,
                                         std::size_t step);

/// Where chunks end, the last one with the image; `bits` (k) from 1 to kWindowHashBits.
std::vector<std::uint64_t> window_ends(std::span<const std::uint16_t> hashes, std::size_t window,
                                       std::size_t step, unsigned bits, std::uint64_t image_bytes);

/// The Rabin fingerprint of some bytes: their bits as a polynomial over GF(2), the first byte's
/// highest bit first, modulo x^53 + ... (Rabin, "Fingerprinting by random polynomials", 1981).
std::uint64_t rabin_fingerprint(ByteSpan bytes);
/// The modulus, irreducible, with the coefficient of x^53 as bit 53.
inline constexpr std::uint64_t kRabinPolynomial = 0x3DA3358B4DC173;
inline constexpr int kRabinDegree = 53;

}  // namespace stdchk
