#include "tools/manifest_writer.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/naming.h"
#include "tools/connection.h"
#include "tools/manifest.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// What is known of a file's content: whole chunks with their checksums, and names where they have
/// some. Nothing of a file that an earlier pool has drained: its checksums went with that pool.
Json pieces_of(const ChunkMap& map) {
  Json pieces = Json::array();
  for (const Slice& slice : map.slices) {
    const Chunk& chunk = map.chunks[slice.chunk];
    const bool whole = slice.chunk_offset == 0 && slice.length == chunk.length;
    if (!whole || (!chunk.name.is_named() && chunk.crc == 0)) continue;
    Json piece = {{"offset", slice.file_offset}, {"length", slice.length}, {"crc32c", chunk.crc}};
    if (chunk.name.is_named()) piece["name"] = to_hex(chunk.name);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// JSON is UTF-8, names of files need not be.
bool is_utf8(const Json& text) {
  return text.dump(-1, ' ', false, Json::error_handler_t::ignore) ==
         text.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// What an earlier manifest says, which may be anything, is of a file as long as this one.
bool has_size(const Json& entry, const Attributes& of) {
  const auto size = entry.find("size");
  return size != entry.end() && size->is_number_unsigned() && *size == of.size_bytes;
}

}  // namespace

Outcome<void> write_manifests(client::Filesystem& filesystem, const std::string& drain_directory,
                              const std::string& path, const Attributes& attributes) {
  std::map<std::string, Json> folders;  // by path; the files in each
  std::map<std::string, Json> earlier;
  Outcome<void> done;
  auto walked =
      walk(filesystem, path, attributes, [&](const std::string& at, const Attributes& of) {
        if (of.type != FileType::kRegular || of.drain != DrainState::kDrained) return true;
        const fs::path file = at;
        const std::string folder = file.parent_path();
        const auto [known, added] = earlier.try_emplace(folder);
        if (added) {
          folders[folder] = known->second =
              manifest_entries((fs::path(drain_directory) / folder).string());
        }
        auto map = filesystem.map(of.id);
        if (!map) {
          done = failed(at, map.error());
          return false;
        }
        // A newer version than the drained one comes with its own drain.
        if (map->first.version != of.version) return true;
        Json pieces = pieces_of(map->second);
        const std::string name = file.filename();
        if (!is_utf8(name)) return true;
        const bool same = known->second.contains(name) && has_size(known->second[name], of);
        if (pieces.empty() && same) return true;
        folders[folder][name] = {{"size", of.size_bytes}, {"pieces", std::move(pieces)}};
        return true;
      });
  if (!done) return done;
  if (!walked) return problem(walked.error());
  for (const auto& [folder, files] : folders) {
    const std::string target = (fs::path(drain_directory) / folder).string();
    if (auto written = replace_manifest(target, files); !written) return written;
  }
  return {};
}

}  // namespace stdchk::tools
