#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/drain_manifest.h"
#include "core/naming.h"
#include "core/types.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// The entries of the manifest of one folder by the names of files; none when it has none, one that
/// is damaged, or one that open_manifest() refuses.
nlohmann::json manifest_entries(const DrainFolder& folder);

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
  std::string below;      ///< the part of the path below the folder that was asked for
  bool unlisted = false;  ///< it is there, and no manifest says anything of it
  std::uint64_t size_bytes = 0;
  std::vector<ManifestPiece> pieces;  ///< in the order of their offsets; they need not cover it all
  bool damaged = false;               ///< the entry is not as a ManifestWriter writes it
};

/// What an entry says of the file at `path`.
ManifestFile parse_entry(std::string path, const nlohmann::json& entry);
/// The files of all manifests in and below a folder, then the other files there, in the order of
/// their paths; each path begins with the folder. Folders below it that cannot be read, and
/// manifests that open_manifest() refuses, are told of and left out.
Outcome<std::vector<ManifestFile>> read_manifests(const std::string& folder);
/// Of a file that was not opened, after its path.
std::string fault_of(const Refusal& refusal);
bool is_as_said(const ManifestPiece& piece, ByteSpan bytes, Namer& namer);
/// The bytes [offset, offset + length) of an open file, or fewer.
std::vector<std::byte> read_range(int fd, std::uint64_t offset, std::size_t length);

}  // namespace stdchk::tools
