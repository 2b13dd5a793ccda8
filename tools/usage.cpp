#include "tools/usage.h"

namespace stdchk::tools {
namespace {

/// Gone since it was listed.
bool gone(const Error& error) {
  return error.code == Code::kNotFound || error.code == Code::kStale;
}

}  // namespace

void Usage::add(const Attributes& attributes, const ChunkMap& map) {
  ++files;
  logical_bytes += attributes.size_bytes;
  for (const Chunk& chunk : map.chunks) {
    if (chunk.copies.empty()) {
      drained_bytes += chunk.length;
      continue;
    }
    const Extent& first = chunk.copies.front();
    if (!places_.emplace(first.benefactor.value, first.offset).second) continue;
    ++chunks;
    stored_bytes += chunk.length;
    if (!chunk.name.is_named()) unnamed_bytes += chunk.length;
  }
}

Outcome<Usage> measure_usage(client::Filesystem& filesystem, const Attributes& below) {
  Usage usage;
  std::vector<Attributes> left = {below};
  while (!left.empty()) {
    const Attributes one = left.back();
    left.pop_back();
    if (one.type == FileType::kDirectory) {
      auto entries = filesystem.read_directory(one.id);
      if (!entries && gone(entries.error())) continue;
      if (!entries) return failed("a directory cannot be listed", entries.error());
      for (const auto& entry : *entries) left.push_back(entry.attributes);
    } else if (one.type == FileType::kRegular && one.version > 0) {
      auto map = filesystem.map(one.id);
      if (!map && gone(map.error())) continue;
      if (!map) return failed("a chunk map cannot be read", map.error());
      usage.add(map->first, map->second);
    }
  }
  return usage;
}

}  // namespace stdchk::tools
