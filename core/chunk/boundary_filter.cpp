#include "core/chunk/boundary_filter.h"

#include "core/base/assert.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace stdchk::boundary {
namespace {

/// Prefetch distance in bytes: without it the loads wait too long for memory.
constexpr std::size_t kPrefetch = 1536;

/// Both factors as the halves of a 32-bit lane.
constexpr int kPair =
    static_cast<int>(static_cast<std::uint32_t>(static_cast<std::uint16_t>(kFactors[1])) << 16 |
                     static_cast<std::uint16_t>(kFactors[0]));

/// The bits of a step's hits that belong to the positions phase, phase + 4, ...
constexpr std::uint64_t places(int phase) { return std::uint64_t{0x1111111111111111} << phase; }

__attribute__((target("avx2"))) inline __m256i load_256(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

/// Computes the filter's sums for the words at `at`, `at` + 4, ...; only the low
/// half of each lane counts.
__attribute__((target("avx2"))) inline __m256i sums_256(const std::byte* at) {
  const __m256i words = _mm256_xor_si256(_mm256_xor_si256(load_256(at), load_256(at - kStride)),
                                         load_256(at - 2 * kStride));
  const __m256i products = _mm256_madd_epi16(words, _mm256_set1_epi32(kPair));
  // Sets the high half to the largest number, which never passes.
  return _mm256_or_si256(_mm256_add_epi32(products, _mm256_set1_epi32(kOffset)),
                         _mm256_set1_epi32(static_cast<int>(0xFFFF0000)));
}

/// Returns the lowest bit of `hits` whose position, `from` + bit, the mix accepts, or 64.
inline std::size_t accepted(const std::byte* from, std::uint64_t hits, std::uint64_t below) {
  for (; hits != 0; hits &= hits - 1) {
    const auto at = static_cast<std::size_t>(std::countr_zero(hits));
    if (mix(from + at) < below) return at;
  }
  return 64;
}

__attribute__((target("avx512f,avx512bw"))) inline __m512i load_512(const std::byte* at,
                                                                    __mmask64 bytes) {
  return _mm512_maskz_loadu_epi8(bytes, at);
}

/// Returns the combined bytes from `at` on.
__attribute__((target("avx512f,avx512bw"))) inline __m512i words_512(const std::byte* at,
                                                                     __mmask64 bytes) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi32(load_512(at, bytes), load_512(at - kStride, bytes),
                                   load_512(at - 2 * kStride, bytes), kXorOfThree);
}

}  // namespace

__attribute__((target("avx2,bmi2"))) Seen search_avx2(const std::byte* bytes, std::size_t from,
                                                      std::size_t to, std::uint64_t below) {
  const __m256i most = _mm256_set1_epi16(kPass - 1);
  for (; from + kStepAvx2 <= to; from += kStepAvx2) {
    const std::byte* const at = bytes + from - 4;
    const __m256i sums[4] = {sums_256(at), sums_256(at + 1), sums_256(at + 2), sums_256(at + 3)};
    const __m256i least =
        _mm256_min_epu16(_mm256_min_epu16(sums[0], sums[1]), _mm256_min_epu16(sums[2], sums[3]));
    const __m256i small = _mm256_cmpeq_epi16(_mm256_min_epu16(least, most), least);
    if (_mm256_testz_si256(small, small)) continue;
    std::uint64_t hits = 0;
#pragma GCC unroll 4
    for (int phase = 0; phase < 4; ++phase) {
      const __m256i mine = _mm256_cmpeq_epi16(_mm256_min_epu16(sums[phase], most), sums[phase]);
      const auto halves = static_cast<std::uint32_t>(_mm256_movemask_epi8(mine));
      hits |= _pdep_u64(_pext_u32(halves, 0x11111111), places(phase));
    }
    if (const std::size_t hit = accepted(bytes + from, hits, below); hit < 64) {
      return {from + hit, true};
    }
  }
  return {from, false};
}

__attribute__((target("avx512f,avx512bw,avx512vnni,avx512vbmi2,bmi2"))) Seen search_avx512(
    const std::byte* bytes, std::size_t from, std::size_t to, std::uint64_t below) {
  if (from + kStepAvx512 > to) return {from, false};
  const __m512i factors = _mm512_set1_epi32(kPair);
  const __m512i offset = _mm512_set1_epi32(kOffset);
  const __m512i pass = _mm512_set1_epi16(kPass);
  constexpr __mmask32 kLowHalves = 0x55555555;
  constexpr __mmask16 kAllWords = 0xFFFF;  // without a mask GCC 12 gives a false warning
  constexpr __mmask64 kAll = ~__mmask64{0};
  // The bytes of the next step that this step needs. Bytes behind them may not be read.
  constexpr __mmask64 kFirstBytes = 0x7;
  __m512i next = words_512(bytes + from - 4, kAll);
  for (; from + kStepAvx512 <= to; from += kStepAvx512) {
    const __m512i words = next;
    _mm_prefetch(bytes + from + kPrefetch, _MM_HINT_T0);
    next = words_512(bytes + from + 60, from + 2 * kStepAvx512 <= to ? kAll : kFirstBytes);
    // Bytes are combined before they form words. So words that begin one, two and three bytes later
    // are shifted out of these words and the words behind them.
    const __m512i behind = _mm512_maskz_alignr_epi32(kAllWords, next, words, 1);
    const __m512i sums[4] = {
        _mm512_dpwssd_epi32(offset, words, factors),
        _mm512_dpwssd_epi32(offset, _mm512_shrdi_epi32(words, behind, 8), factors),
        _mm512_dpwssd_epi32(offset, _mm512_shrdi_epi32(words, behind, 16), factors),
        _mm512_dpwssd_epi32(offset, _mm512_shrdi_epi32(words, behind, 24), factors)};
    const __m512i least =
        _mm512_min_epu16(_mm512_min_epu16(sums[0], sums[1]), _mm512_min_epu16(sums[2], sums[3]));
    if (_mm512_mask_cmplt_epu16_mask(kLowHalves, least, pass) == 0) continue;
    std::uint64_t hits = 0;
#pragma GCC unroll 4
    for (int phase = 0; phase < 4; ++phase) {
      const __mmask32 halves = _mm512_mask_cmplt_epu16_mask(kLowHalves, sums[phase], pass);
      hits |= _pdep_u64(_pext_u32(halves, kLowHalves), places(phase));
    }
    if (const std::size_t hit = accepted(bytes + from, hits, below); hit < 64) {
      return {from + hit, true};
    }
  }
  return {from, false};
}

}  // namespace stdchk::boundary

#else

namespace stdchk::boundary {

Seen search_avx2(const std::byte*, std::size_t, std::size_t, std::uint64_t) {
  assertion_failed("this processor has such vectors", __FILE__, __LINE__);
}

Seen search_avx512(const std::byte*, std::size_t, std::size_t, std::uint64_t) {
  assertion_failed("this processor has such vectors", __FILE__, __LINE__);
}

}  // namespace stdchk::boundary

#endif
