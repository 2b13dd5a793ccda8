#include "core/chunk/window_chunking.h"

#include <openssl/evp.h>

#include <array>

#include "core/base/assert.h"

namespace stdchk {
namespace {

constexpr std::uint64_t kMask = (std::uint64_t{1} << kRabinDegree) - 1;

/// The remainders of the eight bits above the degree, modulo the polynomial.
constexpr std::array<std::uint64_t, 256> reductions() {
  std::array<std::uint64_t, 256> table{};
  for (std::uint64_t high = 0; high < table.size(); ++high) {
    std::uint64_t rest = high;
    // high * x^53
    for (int i = 0; i < kRabinDegree; ++i) {
      rest <<= 1;
      if (rest >> kRabinDegree != 0) rest ^= kRabinPolynomial;
    }
    table[high] = rest;
  }
  return table;
}
constexpr std::array<std::uint64_t, 256> kReductions = reductions();

std::uint64_t append(std::uint64_t fingerprint, std::byte byte) {
  const std::uint64_t high = fingerprint >> (kRabinDegree - 8);
  return ((fingerprint << 8 | std::to_integer<std::uint64_t>(byte)) & kMask) ^ kReductions[high];
}

/// The contribution of a byte that has just left the window: byte * x^(8 * window).
std::uint64_t term_of_leaving_byte(std::byte byte, std::size_t window) {
  std::uint64_t worth = append(0, byte);
  for (std::size_t i = 0; i < window; ++i) worth = append(worth, std::byte{0});
  return worth;
}

std::vector<std::uint16_t> rabin_hashes(ByteSpan bytes, std::size_t window, std::size_t step) {
  const std::uint64_t one_in_front = term_of_leaving_byte(std::byte{1}, window);
  std::vector<std::uint16_t> hashes;
  if (step >= window) {
    for (std::size_t at = 0; at + window <= bytes.size(); at += step) {
      const std::uint64_t fingerprint = rabin_fingerprint(bytes.subspan(at, window));
      hashes.push_back(static_cast<std::uint16_t>(fingerprint ^ one_in_front));
    }
    return hashes;
  }
  std::array<std::uint64_t, 256> leaving{};
  for (std::size_t value = 0; value < leaving.size(); ++value) {
    leaving[value] = term_of_leaving_byte(static_cast<std::byte>(value), window);
  }
  std::uint64_t fingerprint = 0;
  for (std::size_t end = 0; end < bytes.size(); ++end) {
    fingerprint = append(fingerprint, bytes[end]);
    if (end >= window) fingerprint ^= leaving[std::to_integer<std::size_t>(bytes[end - window])];
    if (end + 1 >= window && (end + 1 - window) % step == 0) {
      hashes.push_back(static_cast<std::uint16_t>(fingerprint ^ one_in_front));
    }
  }
  return hashes;
}

std::vector<std::uint16_t> sha1_hashes(ByteSpan bytes, std::size_t window, std::size_t step) {
  EVP_MD* const sha1 = EVP_MD_fetch(nullptr, "SHA1", nullptr);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  // SHA-1 serves only for the comparison, but the comparison is impossible without it.
  STDCHK_ASSERT(sha1 != nullptr && context != nullptr);
  std::vector<std::uint16_t> hashes;
  std::array<unsigned char, 20> digest{};
  for (std::size_t at = 0; at + window <= bytes.size(); at += step) {
    STDCHK_ASSERT(EVP_DigestInit_ex2(context, sha1, nullptr) == 1 &&
                  EVP_DigestUpdate(context, bytes.data() + at, window) == 1 &&
                  EVP_DigestFinal_ex(context, digest.data(), nullptr) == 1);
    hashes.push_back(static_cast<std::uint16_t>(digest[18] << 8 | digest[19]));
  }
  EVP_MD_CTX_free(context);
  EVP_MD_free(sha1);
  return hashes;
}

}  // namespace

std::uint64_t rabin_fingerprint(ByteSpan bytes) {
  std::uint64_t fingerprint = 0;
  for (const std::byte byte : bytes) fingerprint = append(fingerprint, byte);
  return fingerprint;
}

std::vector<std::uint16_t> window_hashes(ByteSpan bytes, WindowHash hash, std::size_t window,
                                         std::size_t step) {
  STDCHK_ASSERT(window > 0 && step > 0);
  return hash == WindowHash::kSha1 ? sha1_hashes(bytes, window, step)
                                   : rabin_hashes(bytes, window, step);
}

std::vector<std::uint64_t> window_ends(std::span<const std::uint16_t> hashes, std::size_t window,
                                       std::size_t step, unsigned bits, std::uint64_t image_bytes) {
  STDCHK_ASSERT(bits > 0 && bits <= kWindowHashBits);
  const std::uint32_t mask = (1U << bits) - 1;
  std::vector<std::uint64_t> ends;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if ((hashes[i] & mask) == 0) ends.push_back(i * step + window);
  }
  if (image_bytes > 0 && (ends.empty() || ends.back() < image_bytes)) ends.push_back(image_bytes);
  return ends;
}

}  // namespace stdchk
