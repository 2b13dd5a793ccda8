#include "core/policy/copy_scatter.h"

#include <algorithm>
#include <cstdint>

namespace stdchk {
namespace {

/// A weight that does not depend on the order of the two, and looks random across pairs.
std::uint64_t pair_weight(BenefactorId a, BenefactorId b) {
  std::uint64_t x = std::min(a, b).value * 0x9E3779B97F4A7C15ULL ^ std::max(a, b).value;
  x ^= x >> 31;  // the mixer of splitmix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

bool precedes_as_copy_target(BenefactorId primary, BenefactorId a, BenefactorId b) {
  return pair_weight(primary, a) > pair_weight(primary, b);
}

}  // namespace stdchk
