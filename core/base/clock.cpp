#include "core/base/clock.h"

#include <bit>

#include "core/base/assert.h"

namespace stdchk {

Time SystemClock::now() const { return std::chrono::steady_clock::now(); }

std::int64_t SystemClock::wall_ns() const {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Prng::Prng(std::uint64_t seed) {
  // SplitMix64 spreads the seed, as the authors of xoshiro recommend.
  for (std::uint64_t& word : state_) {
    seed += 0x9E3779B97F4A7C15ULL;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBULL;
    word = mixed ^ (mixed >> 31);
  }
}

std::uint64_t Prng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Prng::below(std::uint64_t bound) {
  STDCHK_ASSERT(bound != 0);
  return next() % bound;
}

bool Prng::chance(std::uint64_t numerator, std::uint64_t denominator) {
  return below(denominator) < numerator;
}

}  // namespace stdchk
