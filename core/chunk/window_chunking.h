#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/values/types.h"

/// The papers' content-defined chunking, as they describe it (Al-Kiswany et al., "stdchk", ICDCS
/// 2008, section IV.C). It serves for comparisons; stdchk itself uses core/chunk/chunker.h.
///
/// A window of m bytes moves over the image in steps of p bytes: p = 1 (overlap) or p = m (no
/// overlap). A chunk ends behind each window whose hash has k low bits of 0. There is no minimum
/// and no maximum length.
namespace stdchk {

enum class WindowHash : std::uint8_t { kSha1, kRabin };

inline constexpr std::size_t kWindowHashBits = 16;

/// Returns the low kWindowHashBits of the hashes of all whole windows, in order. For SHA-1 it
/// returns the digest's last two bytes. For Rabin the window follows a byte of 1, so that leading
/// zeros count. `window` and `step` are at least 1.
std::vector<std::uint16_t> window_hashes(ByteSpan bytes, WindowHash hash, std::size_t window,
                                         std::size_t step);

/// Returns where chunks end; the last one ends with the image. `bits` (k) is from 1 to
/// kWindowHashBits.
std::vector<std::uint64_t> window_ends(std::span<const std::uint16_t> hashes, std::size_t window,
                                       std::size_t step, unsigned bits, std::uint64_t image_bytes);

/// Returns the Rabin fingerprint of the bytes (Rabin, "Fingerprinting by random polynomials",
/// 1981). It is the polynomial of their bits over GF(2), the first byte's highest bit first, modulo
/// kRabinPolynomial.
std::uint64_t rabin_fingerprint(ByteSpan bytes);
/// The irreducible modulus; bit 53 is the coefficient of x^53.
inline constexpr std::uint64_t kRabinPolynomial = 0x3DA3358B4DC173;
inline constexpr int kRabinDegree = 53;

}  // namespace stdchk
