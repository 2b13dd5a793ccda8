#include "tools/drained/manifest.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json_fields.h"
#include "core/base/limits.h"
#include "core/base/whole_io.h"
#include "core/files/drain_directory.h"
#include "core/messages/messages.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kDepthMax = 8;  // a piece's values are 5 levels below the manifest
constexpr std::uint64_t kCrcMax = std::numeric_limits<std::uint32_t>::max();

/// A parsed manifest takes several times its size in memory.
constexpr std::int64_t kManifestBytesMax = std::int64_t{1} << 30;

/// No value: not JSON. Values nested deeper than in a manifest are left out, because the library
/// copies and writes recursively.
Json parse_file(const OpenedFile& manifest) {
  if (manifest.status.st_size > kManifestBytesMax) return Json(Json::value_t::discarded);
  const auto bytes =
      read_range(manifest.file.get(), 0, static_cast<std::size_t>(manifest.status.st_size));
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) {
    return depth <= kDepthMax;
  };
  const auto* const text = reinterpret_cast<const char*>(bytes.data());
  return Json::parse(text, text + bytes.size(), is_shallow, false);
}

/// Throws, as read_field() does, unless a number up to `max` exists.
std::uint64_t number(const Json& of, const char* key, std::uint64_t max) {
  const Json& found = of.at(key);
  if (!found.is_number_unsigned() || found.get<std::uint64_t>() > max) {
    throw std::out_of_range(key);
  }
  return found.get<std::uint64_t>();
}

/// A manifest describes only files of its own folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

ManifestFile parse_entry(std::string path, const Json& entry) {
  ManifestFile file;
  file.path = std::move(path);
  const auto read = read_json([&] {
    file.size_bytes = number(entry, "size", limits::kFileBytesMax);
    for (const Json& piece : entry.at("pieces")) {
      ManifestPiece one{
          number(piece, "offset", file.size_bytes), number(piece, "length", limits::kChunkBytesMax),
          static_cast<std::uint32_t>(number(piece, "crc32c", kCrcMax)), piece.value("name", "")};
      if (one.length > file.size_bytes - one.offset) throw std::out_of_range("length");
      file.pieces.push_back(std::move(one));
    }
    return true;
  });
  file.damaged = !read;
  std::ranges::sort(file.pieces, {}, &ManifestPiece::offset);
  return file;
}

namespace {

bool has_files(const Json& manifest) {
  return manifest.is_object() && manifest.contains("files") && manifest["files"].is_object();
}

/// A Found lists files and manifests below one folder.
struct Found {
  std::string top;  ///< path of the requested folder
  std::vector<ManifestFile> files;
  std::map<std::string, std::uint64_t> sizes;  ///< of all plain files, by path below the top
  std::vector<std::string> links;
  std::vector<std::string> folders;

  std::string path_of(const std::string& below) const {
    return below.empty() ? top : (fs::path(top) / below).string();
  }
};

void leave_out(const Problem& refusal) { fmt::print(stderr, "stdchk: {}\n", refusal.text); }

std::string join(const std::string& below, const std::string& name) {
  return below.empty() ? name : below + "/" + name;
}

Outcome<void> read_manifest(Found& found, const DrainFolder& folder, const std::string& below) {
  const auto file = open_manifest(folder, Access::kRead);
  if (!file) {
    leave_out(file.error());
    return {};
  }
  const Json manifest = parse_file(*file);
  if (!has_files(manifest)) {
    return problem("{} is damaged", found.path_of(join(below, kManifestName)));
  }
  for (const auto& [key, entry] : manifest["files"].items()) {
    const auto name = name_of_key(key);
    const std::string inner = join(below, name.value_or(key));
    found.files.push_back(parse_entry(found.path_of(inner), entry));
    found.files.back().below = inner;
    if (!name || !is_file_name(*name)) found.files.back().damaged = true;
  }
  return {};
}

/// Opens one folder at a time, at any depth.
Outcome<void> find_manifests_below(Found& found, const DrainFolder& top, const std::string& below) {
  std::vector<std::string> folders;
  {
    const auto folder = top.folder(below);
    const auto names =
        folder ? folder->names() : Outcome<std::vector<std::string>>(tl::unexpect, folder.error());
    if (!names) {
      if (below.empty()) return problem("{} cannot be read: {}", found.top, names.error().text);
      leave_out(names.error());
      return {};
    }
    for (const std::string& name : *names) {
      const auto status = folder->status(name);
      if (!status) continue;  // removed meanwhile
      if (name == kManifestName) {
        if (auto read = read_manifest(found, *folder, below); !read) return read;
      } else if (S_ISDIR(status->st_mode) && name != msg::kTemporaryFolder) {
        folders.push_back(join(below, name));
      } else if (S_ISREG(status->st_mode) && !is_pool_file(name)) {
        found.sizes.emplace(join(below, name), static_cast<std::uint64_t>(status->st_size));
      } else if (S_ISLNK(status->st_mode) && !is_pool_file(name)) {
        found.links.push_back(join(below, name));
      }
    }
  }
  for (const std::string& inner : folders) {
    found.folders.push_back(inner);
    if (auto looked = find_manifests_below(found, top, inner); !looked) return looked;
  }
  return {};
}

}  // namespace

Json manifest_entries(const DrainFolder& folder) {
  const auto file = open_manifest(folder, Access::kRead);
  Json manifest = file ? parse_file(*file) : Json();
  return has_files(manifest) ? std::move(manifest["files"]) : Json::object();
}

Outcome<DrainedTree> read_tree(const std::string& folder) {
  const auto top = DrainDirectory(folder).open();
  if (!top) return problem("{} cannot be read: {}", folder, top.error().text);
  Found found{folder, {}, {}, {}, {}};
  if (auto looked = find_manifests_below(found, *top, ""); !looked) return problem(looked.error());
  std::set<std::string> listed;
  for (const ManifestFile& file : found.files) {
    found.sizes.erase(file.below);
    listed.insert(file.below);
  }
  // Somebody has put a link in the place of a drained file: the file is damaged.
  std::erase_if(found.links, [&](const std::string& link) { return listed.contains(link); });
  for (const auto& [below, size] : found.sizes) {
    ManifestFile& file = found.files.emplace_back();
    file.path = found.path_of(below);
    file.below = below;
    file.unlisted = true;
    file.size_bytes = size;
  }
  return DrainedTree{std::move(found.files), std::move(found.links), std::move(found.folders)};
}

Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder) {
  auto tree = read_tree(folder);
  if (!tree) return problem(tree.error());
  return std::move(tree->files);
}

std::string fault_of(const Problem& refusal) {
  if (refusal.error.os_errno == ENOENT) return "cannot be opened";
  return fmt::format("cannot be opened: {}", refusal.text);
}

bool matches_manifest(const ManifestPiece& piece, ByteSpan bytes, Namer& namer) {
  return bytes.size() == piece.length && crc32c(0, bytes) == piece.crc &&
         (piece.name.empty() || to_hex(namer.name(bytes)) == piece.name);
}

std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length) {
  std::vector<std::byte> bytes(length);
  const ssize_t got = read_at(fd, offset, bytes);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

}  // namespace stdchk::tools
