#include "tools/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "core/limits.h"
#include "core/messages/messages.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kDepthMax = 8;  // a piece's values are 5 below the manifest
constexpr std::uint64_t kCrcMax = std::numeric_limits<std::uint32_t>::max();

/// No value: it is not JSON. What is nested deeper than a manifest is left out: the library copies
/// and writes by recursion.
Json parse_file(const fs::path& path) {
  std::ifstream file(path);
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) {
    return depth <= kDepthMax;
  };
  return Json::parse(file, is_shallow, false);
}

/// Throws a std::exception, as the JSON library does, when there is no such number up to `max`.
std::uint64_t number(const Json& of, const char* key, std::uint64_t max) {
  const Json& found = of.at(key);
  if (!found.is_number_unsigned() || found.get<std::uint64_t>() > max) {
    throw std::out_of_range(key);
  }
  return found.get<std::uint64_t>();
}

/// The manifest is about files of its own folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

ManifestFile parse_entry(std::string path, const Json& entry) {
  ManifestFile file;
  file.path = std::move(path);
  try {  // the JSON library's exceptions
    file.size_bytes = number(entry, "size", limits::kFileBytesMax);
    for (const Json& piece : entry.at("pieces")) {
      ManifestPiece one{
          number(piece, "offset", file.size_bytes), number(piece, "length", limits::kChunkBytesMax),
          static_cast<std::uint32_t>(number(piece, "crc32c", kCrcMax)), piece.value("name", "")};
      if (one.length > file.size_bytes - one.offset) throw std::out_of_range("length");
      file.pieces.push_back(std::move(one));
    }
  } catch (const std::exception&) {
    file.damaged = true;
  }
  std::ranges::sort(file.pieces, {}, &ManifestPiece::offset);
  return file;
}

Json manifest_entries(const std::string& folder) {
  const Json manifest = parse_file(folder + "/" + kManifestName);
  return manifest.is_object() && manifest.contains("files") && manifest["files"].is_object()
             ? manifest["files"]
             : Json::object();
}

Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder) {
  std::vector<ManifestFile> files;
  std::map<std::string, std::uint64_t> there;  // sizes, by path
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code)) {
    const std::string file_name = at->path().filename();
    if (file_name == msg::kTemporaryFolder) at.disable_recursion_pending();
    if (!is_manifest(file_name)) {
      std::error_code gone;
      const auto status = at->symlink_status(gone);
      const std::uint64_t size = fs::is_regular_file(status) ? at->file_size(gone) : 0;
      if (!gone && fs::is_regular_file(status)) there.emplace(at->path(), size);
    }
    if (file_name != kManifestName) continue;
    const Json manifest = parse_file(at->path());
    if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_object()) {
      return problem("{} is damaged", at->path().string());
    }
    for (const auto& [name, entry] : manifest["files"].items()) {
      files.push_back(parse_entry((at->path().parent_path() / name).string(), entry));
      if (!is_file_name(name)) files.back().damaged = true;
    }
  }
  if (code) return problem("{} cannot be read: {}", folder, code.message());
  for (const ManifestFile& file : files) there.erase(file.path);
  for (const auto& [path, size] : there) {
    ManifestFile& file = files.emplace_back();
    file.path = path;
    file.unlisted = true;
    file.size_bytes = size;
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

}  // namespace stdchk::tools
