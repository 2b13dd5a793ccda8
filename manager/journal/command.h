#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "manager/journal/journal.structs.h"

/// The commands of the journal. The schema manager/journal/journal.capnp describes them, and
/// journal.structs.h is made of it.
namespace stdchk::manager {

using Xattrs = std::vector<std::pair<std::string, std::string>>;

/// The number of epochs in a block. A restarted manager takes the next epoch of its block; a
/// rebuilt manager begins the next block. So the manager that it replaces, if it starts again, gets
/// other epochs.
inline constexpr std::uint64_t kEpochBlock = 256;
constexpr bool same_block(Epoch one, Epoch other) {
  return one.value / kEpochBlock == other.value / kEpochBlock;
}

}  // namespace stdchk::manager
