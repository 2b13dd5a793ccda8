#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/chunk/naming.h"
#include "core/files/drain_manifest.h"
#include "core/values/types.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// The manifest entries of one folder by manifest_key(); empty if the manifest is missing, damaged, or
/// refused by open_manifest().
nlohmann::json manifest_entries(const DrainFolder& folder);

/// A range of a drained file, and the checksum and name of its bytes.
struct ManifestPiece {
  std::uint64_t offset = 0;
  std::size_t length = 0;
  std::uint32_t crc = 0;
  std::string name;  ///< hexadecimal; empty: none
};
/// A ManifestFile is the description of one drained file in a manifest.
struct ManifestFile {
  std::string path;
  std::string below;      ///< the part of the path below the requested folder
  bool unlisted = false;  ///< the file exists, but no manifest lists it
  std::uint64_t size_bytes = 0;
  std::vector<ManifestPiece> pieces;  ///< ordered by offset; may leave gaps
  bool damaged = false;               ///< the entry has not the form that a ManifestWriter writes
};

/// Parses the entry of the file at `path`.
ManifestFile parse_entry(std::string path, const nlohmann::json& entry);
/// A DrainedTree lists what lies below a folder of a drain directory.
struct DrainedTree {
  std::vector<ManifestFile> files;  ///< as read_manifests() returns them
  /// Symbolic links by path below the folder. The pool's own links are not listed, and no link in the
  /// place of a file that a manifest lists.
  std::vector<std::string> links;
  /// Folders by path below the folder. An outer folder precedes its inner folders. The folder of
  /// temporary files is not listed.
  std::vector<std::string> folders;
};

/// Lists the files that manifests below a folder name, then all other files there, ordered by path.
/// Each path begins with the folder. Prints and skips unreadable folders, and manifests that
/// open_manifest() refuses.
Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder);
/// As read_manifests(), with the symbolic links and the folders.
Outcome<DrainedTree> read_tree(const std::string& folder);
/// Says why a file was not opened; the text follows the path.
std::string fault_of(const Problem& refusal);
bool matches_manifest(const ManifestPiece& piece, ByteSpan bytes, Namer& namer);
/// The bytes [offset, offset + length) of an open file, or fewer.
std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length);

}  // namespace stdchk::tools
