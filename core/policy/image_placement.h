#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>

#include "core/policy/policy.h"

namespace stdchk {

/// The key of the policy `placement`, whose value is an ImagePlacement. Its number is one of
/// PolicyKey's numbers.
inline constexpr PolicyKey kPlacementKey{11};
inline constexpr auto kAllPolicyKeys = [] {
  std::array<PolicyKey, std::size(kPolicyKeys) + 1> all{};
  std::copy(std::begin(kPolicyKeys), std::end(kPolicyKeys), all.begin());
  all.back() = kPlacementKey;
  return all;
}();

/// The benefactors that hold the chunks of an image.
enum class ImagePlacement : std::uint8_t {
  kStriped = 1,  ///< a stripe of benefactors; copies are scattered over a few others
  kNode = 2,  ///< the benefactor on the writer's node; each further copy is whole on another node
};

inline ImagePlacement placement_of(const Policy& policy) {
  return static_cast<ImagePlacement>(policy.get(kPlacementKey));
}

/// Returns nothing when all settings of the policy can hold at once; otherwise kInvalidArgument.
/// Parity needs chunks on different nodes, so it excludes placement by node.
std::optional<Problem> check_together(const Policy& policy);
/// The same for changes of a folder for which `before` holds. A folder may have inherited settings
/// that exclude each other: changes of other settings are still allowed there.
std::optional<Problem> check_change(Policy before, const Policy& changes);

}  // namespace stdchk
