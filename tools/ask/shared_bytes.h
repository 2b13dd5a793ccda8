#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A ChunkUse is the chunk of a slice of a file, and the length of the slice in bytes.
using ChunkUse = std::pair<ChunkName, std::uint32_t>;

std::vector<ChunkUse> chunk_uses(const ChunkMap& map);

/// Returns how many bytes are in chunks that `seen` has, or that occur earlier in `uses`. Adds the
/// chunks to `seen`.
std::uint64_t count_shared(const std::vector<ChunkUse>& uses, std::set<ChunkName>& seen);

/// Returns how many bytes of a file older files of its folder have, too. Asks for the chunk maps of
/// the 1,000 newest of the older files. Skips files that vanish meanwhile.
Outcome<std::uint64_t> shared_with_older(client::Filesystem& filesystem, FileId folder,
                                         const Attributes& file, const std::vector<ChunkUse>& uses);

}  // namespace stdchk::tools
