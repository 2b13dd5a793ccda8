#include "tools/ask/shared_bytes.h"

#include <algorithm>
#include <cstddef>

#include "client/api/is_gone.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kOlderMax = 1000;

}  // namespace

std::vector<ChunkUse> chunk_uses(const ChunkMap& map) {
  std::vector<ChunkUse> uses;
  uses.reserve(map.slices.size());
  for (const Slice& slice : map.slices) {
    uses.emplace_back(map.chunks[slice.chunk].name, slice.length);
  }
  return uses;
}

std::uint64_t count_shared(const std::vector<ChunkUse>& uses, std::set<ChunkName>& seen) {
  std::uint64_t shared = 0;
  for (const auto& [name, bytes] : uses) {
    if (!seen.insert(name).second) shared += bytes;
  }
  return shared;
}

Outcome<std::uint64_t> shared_with_older(client::Filesystem& filesystem, FileId folder,
                                         const Attributes& file,
                                         const std::vector<ChunkUse>& uses) {
  auto entries = filesystem.read_directory(folder);
  if (!entries) return failed("the file's directory cannot be listed", entries.error());
  std::erase_if(*entries, [&](const auto& entry) {
    const Attributes& other = entry.attributes;
    return other.type != FileType::kRegular || other.version == 0 || other.id == file.id ||
           other.mtime_ns > file.mtime_ns;
  });
  std::ranges::sort(*entries, std::ranges::greater{},
                    [](const auto& entry) { return entry.attributes.mtime_ns; });
  if (entries->size() > kOlderMax) entries->resize(kOlderMax);
  std::set<ChunkName> seen;
  for (const auto& entry : *entries) {
    auto map = filesystem.map(entry.attributes.id);
    if (!map && client::is_gone(map.error())) continue;
    if (!map) return failed("a chunk map cannot be read", map.error());
    for (const Chunk& chunk : map->second.chunks) seen.insert(chunk.name);
  }
  return count_shared(uses, seen);
}

}  // namespace stdchk::tools
