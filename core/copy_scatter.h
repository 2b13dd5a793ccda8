#pragma once

#include <cstddef>

#include "core/types.h"

namespace stdchk {

/// The copies of what is on one benefactor are spread over so many others, so that few sets of
/// benefactors hold all copies of anything (Cidon et al., "Copysets", USENIX ATC 2013).
inline constexpr std::size_t kCopyScatter = 4;

/// True when copies of what `primary` has go to `a` before they go to `b`: the first kCopyScatter
/// of all others in this order get them, as long as these have the room and are in domains enough.
/// The order is the primary's own and that of its opposite, and the same in every life.
bool takes_copies_before(BenefactorId primary, BenefactorId a, BenefactorId b);

}  // namespace stdchk
