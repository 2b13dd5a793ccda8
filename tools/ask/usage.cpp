#include "tools/ask/usage.h"

#include <utility>
#include <vector>

#include "client/api/is_gone.h"
#include "core/chunk/sealed_chunk.h"
#include "core/policy/image_name.h"

namespace stdchk::tools {

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
    if (!follows_from_content(chunk.name)) unnamed_bytes += chunk.length;
  }
}

Outcome<Usage> measure_usage(client::Filesystem& filesystem, const Attributes& below,
                             SeriesReport& series) {
  struct Found {
    FileId directory;
    std::string name;
    Attributes attributes;
  };
  Usage usage;
  std::vector<Found> left = {{{}, {}, below}};
  while (!left.empty()) {
    const Found one = std::move(left.back());
    left.pop_back();
    if (one.attributes.type == FileType::kDirectory) {
      auto entries = filesystem.read_directory(one.attributes.id);
      if (!entries && client::is_gone(entries.error())) continue;
      if (!entries) return failed("a directory cannot be listed", entries.error());
      for (auto& entry : *entries) {
        left.push_back({one.attributes.id, std::move(entry.name), entry.attributes});
      }
    } else if (one.attributes.type == FileType::kRegular && one.attributes.version > 0) {
      auto map = filesystem.map(one.attributes.id);
      if (!map && client::is_gone(map.error())) continue;
      if (!map) return failed("a chunk map cannot be read", map.error());
      usage.add(map->first, map->second);
      series.add(one.directory, one.name, map->first.naming, map->second);
    }
  }
  return usage;
}

Outcome<void> add_series_usage(client::Filesystem& filesystem, FileId directory,
                               std::string_view image, SeriesReport& series) {
  const auto wanted = parse_image_name(image);
  if (!wanted) return {};
  auto entries = filesystem.read_directory(directory);
  if (!entries) return failed("the directory cannot be listed", entries.error());
  for (const auto& entry : *entries) {
    const auto other = parse_image_name(entry.name);
    if (!other || other->application != wanted->application || other->node != wanted->node) {
      continue;
    }
    if (entry.attributes.type != FileType::kRegular || entry.attributes.version == 0) continue;
    auto map = filesystem.map(entry.attributes.id);
    if (!map && client::is_gone(map.error())) continue;
    if (!map) return failed("a chunk map cannot be read", map.error());
    series.add(directory, entry.name, map->first.naming, map->second);
  }
  return {};
}

}  // namespace stdchk::tools
