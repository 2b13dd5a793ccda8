#include "tools/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/limits.h"
#include "tools/connection.h"

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

Json read_manifest(const std::string& path) {
  std::ifstream file(path);
  const Json manifest = Json::parse(file, nullptr, false);
  return manifest.is_object() && manifest.contains("files") && manifest["files"].is_object()
             ? manifest["files"]
             : Json::object();
}

/// Durable, and whole from its first moment.
Outcome<void> replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  std::size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  const bool good = fd >= 0 && done == text.size() && ::fsync(fd) == 0 &&
                    ::rename(temporary.c_str(), path.c_str()) == 0;
  const int code = errno;
  if (fd >= 0) ::close(fd);
  if (good) return {};
  return problem("{} cannot be written: {}", path, std::strerror(code));
}

std::string manifest_text(const Json& files) {
  return Json{{"format", 1}, {"files", files}}.dump(1) + "\n";
}

ManifestFile parse_entry(std::string path, const Json& entry) {
  ManifestFile file;
  file.path = std::move(path);
  try {  // the JSON library's exceptions
    file.size_bytes = entry.at("size").get<std::uint64_t>();
    for (const Json& piece : entry.at("pieces")) {
      ManifestPiece one{piece.at("offset").get<std::uint64_t>(),
                        piece.at("length").get<std::size_t>(),
                        piece.at("crc32c").get<std::uint32_t>(), piece.value("name", "")};
      if (one.length > limits::kChunkBytesMax || one.offset > file.size_bytes ||
          one.length > file.size_bytes - one.offset) {
        throw std::out_of_range("piece");
      }
      file.pieces.push_back(std::move(one));
    }
  } catch (const std::exception&) {
    file.damaged = true;
  }
  std::ranges::sort(file.pieces, {}, &ManifestPiece::offset);
  return file;
}

}  // namespace

Outcome<void> forget_in_manifest(const std::string& folder, const std::vector<std::string>& names) {
  const std::string path = folder + "/" + kManifestName;
  Json files = read_manifest(path);
  const std::size_t before = files.size();
  for (const std::string& name : names) files.erase(name);
  if (files.size() == before) return {};
  if (!files.empty()) return replace_file(path, manifest_text(files));
  std::error_code code;
  fs::remove(path, code);
  if (code) return problem("{} cannot be removed: {}", path, code.message());
  return {};
}

Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder) {
  std::vector<ManifestFile> files;
  std::error_code code;
  std::size_t manifests = 0;
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code)) {
    if (at->path().filename() != kManifestName) continue;
    ++manifests;
    std::ifstream stream(at->path());
    const Json manifest = Json::parse(stream, nullptr, false);
    if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_object()) {
      return problem("{} is damaged", at->path().string());
    }
    for (const auto& [name, entry] : manifest["files"].items()) {
      files.push_back(parse_entry((at->path().parent_path() / name).string(), entry));
    }
  }
  if (code) return problem("{} cannot be read: {}", folder, code.message());
  if (manifests == 0) {
    return problem("there is no {} in {} or below; stdchk drain --wait and down --drain write them",
                   kManifestName, folder);
  }
  return files;
}

bool is_as_said(const ManifestPiece& piece, ByteSpan bytes, Namer& namer) {
  return bytes.size() == piece.length && crc32c(0, bytes) == piece.crc &&
         (piece.name.empty() || to_hex(namer.name(bytes)) == piece.name);
}

std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length) {
  std::vector<std::byte> bytes(length);
  std::size_t done = 0;
  while (done < length) {
    const ssize_t n =
        ::pread(fd, bytes.data() + done, length - done, static_cast<off_t>(offset + done));
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

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
        const std::string manifest = (fs::path(drain_directory) / folder / kManifestName).string();
        if (added) folders[folder] = known->second = read_manifest(manifest);
        auto map = filesystem.map(of.id);
        if (!map) {
          done = failed(at, map.error());
          return false;
        }
        // A newer version than the drained one comes with its own drain.
        if (map->first.version != of.version) return true;
        Json pieces = pieces_of(map->second);
        const std::string name = file.filename();
        const bool same = known->second.contains(name) &&
                          known->second[name].value("size", std::uint64_t{0}) == of.size_bytes;
        if (pieces.empty() && same) return true;
        folders[folder][name] = {{"size", of.size_bytes}, {"pieces", std::move(pieces)}};
        return true;
      });
  if (!done) return done;
  if (!walked) return problem(walked.error());
  for (const auto& [folder, files] : folders) {
    const std::string target = (fs::path(drain_directory) / folder / kManifestName).string();
    if (auto written = replace_file(target, manifest_text(files)); !written) return written;
  }
  return {};
}

}  // namespace stdchk::tools
