#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/naming.h"
#include "core/types.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// The file in each folder of the drain directory that says what the drained files there must hold.
inline constexpr const char* kManifestName = ".stdchk-manifest";

/// The entries of the manifest of one folder by the names of files; none when it has none, or one
/// that is damaged.
nlohmann::json manifest_entries(const std::string& folder);
/// Durable, and whole from its first moment.
Outcome<void> replace_manifest(const std::string& folder, const nlohmann::json& entries);

/// Takes files that were removed out of the manifest of one folder of the drain directory, and
/// removes one that says nothing any more.
Outcome<void> forget_in_manifest(const std::string& folder, const std::vector<std::string>& names);

/// A range of a drained file, and what its bytes must be.
struct ManifestPiece {
  std::uint64_t offset = 0;
  std::size_t length = 0;
  std::uint32_t crc = 0;
  std::string name;  ///< in hexadecimal; empty: none
};
/// A ManifestFile is what a manifest says of one drained file.
struct ManifestFile {
  std::string path;
  std::uint64_t size_bytes = 0;
  std::vector<ManifestPiece> pieces;  ///< in the order of their offsets; they need not cover it all
  bool damaged = false;               ///< the entry is not as write_manifests() writes it
};

/// The files of all manifests in and below a folder; `path` begins with the folder.
Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder);
bool is_as_said(const ManifestPiece& piece, ByteSpan bytes, Namer& namer);
/// The bytes [offset, offset + length) of an open file, or fewer.
std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length);

}  // namespace stdchk::tools
