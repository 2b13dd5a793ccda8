#pragma once

#include <cstddef>

#include "core/values/types.h"

namespace stdchk {

/// The number of benefactors that hold the copies of another one's chunks. It is small, so that few
/// groups of benefactors hold all copies of a chunk (Cidon et al., "Copysets", USENIX ATC 2013).
inline constexpr std::size_t kCopyScatter = 4;

/// Returns true when `a` takes copies of `primary`'s chunks before `b` does. The first kCopyScatter
/// benefactors in this order take them, if they have room and are in enough failure domains. Each
/// primary has its own order, which survives restarts. The weight of a pair is the same both ways,
/// so pairs tend to take each other's copies.
bool precedes_as_copy_target(BenefactorId primary, BenefactorId a, BenefactorId b);

}  // namespace stdchk
