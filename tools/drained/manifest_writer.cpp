#include "tools/drained/manifest_writer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/chunk/naming.h"
#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "tools/base/connection.h"
#include "tools/drained/manifest.h"
#include "tools/drained/manifest_change.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// The known content of a file: whole chunks with their checksums, and names where they exist. For
/// a file that an earlier pool drained, the content is what this pool found in the manifest.
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

/// Whether an earlier manifest's entry (arbitrary JSON) has that file size.
bool has_size(const Json& entry, const Json& size) {
  return entry.is_object() && entry.contains("size") && entry["size"].is_number_unsigned() &&
         entry["size"] == size;
}

std::vector<DrainedRange> ranges_of(const Json& entry) {
  std::vector<DrainedRange> ranges;
  const ManifestFile file = parse_entry({}, entry);
  if (file.damaged) return ranges;
  for (const ManifestPiece& piece : file.pieces) {
    ranges.push_back({piece.offset, static_cast<std::uint32_t>(piece.length), piece.crc});
  }
  return ranges;
}

/// Merges the pool's entries into the old ones; the pool's entries win. An old entry stays if only
/// the earlier pool knew the checksums and the bytes are the same. It locates damage more exactly
/// than the new pool's entry, and may have names.
void merge(const Json& found, Json& entries) {
  for (const auto& [name, entry] : found.items()) {
    const auto known = entries.find(name);
    const bool same = known != entries.end() && has_size(*known, entry["size"]);
    if (same && entry["pieces"].empty()) continue;
    const bool closer = same && ranges_of(entry) == joined(ranges_of(*known));
    Json merged = entry;
    if (closer) merged["pieces"] = (*known)["pieces"];
    entries[name] = std::move(merged);
  }
}

/// Drops entries of removed files. An unreadable folder tells nothing about its files.
void drop_removed_files(const DrainFolder& folder, Json& entries) {
  const auto names = folder.names();
  if (!names) return;
  for (auto entry = entries.begin(); entry != entries.end();) {
    const auto name = name_of_key(entry.key());
    const bool is_there = name && std::ranges::binary_search(*names, *name);
    entry = is_there ? std::next(entry) : entries.erase(entry);
  }
}

}  // namespace

Outcome<void> ManifestWriter::write(client::Filesystem& filesystem, const std::string& path,
                                    const Attributes& attributes) {
  // Each object has its own checksums.
  if (is_object_store(drain_directory_)) return {};
  std::map<std::string, Json> folders;  // entries of each folder's files, by the folder's path
  Written written;
  Outcome<void> done;
  const auto add = [&](const std::string& at, const Attributes& of) {
    if (of.type == FileType::kDirectory) folders.try_emplace(at, Json::object());
    if (of.type != FileType::kRegular || of.drain != DrainState::kDrained) return true;
    const fs::path file = at;
    const std::string name = file.filename();
    const std::tuple version(of.id, of.version, of.mtime_ns);
    const auto known = written_.find(at);
    const bool is_known = known != written_.end() && known->second == version;
    if (!is_known) {
      auto map = filesystem.map(of.id);
      if (!map && map.error().code == Code::kNotFound) return true;  // removed just now
      if (!map) {
        done = failed(at, map.error());
        return false;
      }
      // A newer version gets its own drain and then its own entry.
      if (map->first.version != of.version) return true;
      auto [entries, added] = folders.try_emplace(file.parent_path(), Json::object());
      entries->second[manifest_key(name)] = {
          {"size", of.size_bytes}, {"mtime", of.mtime_ns}, {"pieces", pieces_of(map->second)}};
    }
    written.emplace(at, version);
    return true;
  };
  auto walked = walk(filesystem, path, attributes, add);
  if (!done) return done;
  if (!walked) return problem(walked.error());
  const DrainDirectory drain(drain_directory_);
  const auto until = std::chrono::steady_clock::now() + kManifestPatience;
  for (const auto& [folder, found] : folders) {
    // Removed files are looked for in the first run, and later only where entries are new.
    if (found.empty() && !written_.empty()) continue;
    const std::string target = (fs::path(drain_directory_) / folder).string();
    std::set<std::string> kept;
    const auto root = drain.open();
    if (!root) return problem("{}", root.error().text);
    const auto place = root->folder(folder);
    if (!place && found.empty()) continue;
    if (!place) {
      // The folder's owner may have replaced it. Other folders still get their manifests.
      fmt::print(stderr, "stdchk: no manifest is written: {}\n", place.error().text);
      for (const auto& [key, entry] : found.items()) {
        written.erase((fs::path(folder) / name_of_key(key).value_or(key)).string());
      }
      continue;
    }
    const auto change = [&, &found = found](Json& entries) {
      kept.clear();
      merge(found, entries);
      drop_removed_files(*place, entries);
      for (const auto& [name, entry] : entries.items()) kept.insert(name);
    };
    if (auto changed = change_manifest(*place, target, change, until); !changed) return changed;
    // The drain directory may rename a file later than the pool.
    for (const auto& [key, entry] : found.items()) {
      if (kept.contains(key)) continue;
      written.erase((fs::path(folder) / name_of_key(key).value_or(key)).string());
    }
  }
  written_ = std::move(written);
  return {};
}

}  // namespace stdchk::tools
