#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/drain_folder.h"
#include "core/files/drain_lease.h"

namespace stdchk {

/// The file in each folder of the drain directory that says what the drained files there must hold.
inline constexpr const char* kManifestName = ".stdchk-manifest";

/// Returns true for the manifest of a folder, and for an unfinished manifest of a running or killed
/// writer.
inline bool is_manifest(std::string_view file_name) {
  const std::string_view name = kManifestName;
  return file_name.starts_with(name) &&
         (file_name.size() == name.size() || file_name[name.size()] == '.');
}

/// The symbolic link in a folder of the drain directory whose target is the text of the folder's
/// policy and rules, as parse_folder_settings() reads it.
inline constexpr const char* kPolicyLinkName = ".stdchk-policy";

/// Returns true for names in the drain directory that are no users' files.
inline bool is_pool_file(std::string_view file_name) {
  return file_name == kPolicyLinkName || file_name.starts_with(kLeaseName) ||
         is_manifest(file_name);
}

/// Returns the text of a folder's policy; ENOENT: there is none. Refuses the same owners as
/// open_manifest().
Outcome<std::string> read_policy_text(const DrainFolder& folder);

/// Returns the key of a file's entry in a manifest. Keys are UTF-8, and file names may be any bytes.
/// The key has U+0000 and two hexadecimal digits for a byte that is no part of a UTF-8 character.
/// No file name contains U+0000.
std::string manifest_key(std::string_view file_name);
/// Returns the name of the file with this key; nothing if manifest_key() does not make that key.
std::optional<std::string> name_of_key(std::string_view key);

/// Opens the manifest of a folder; ENOENT: there is none. Refuses a manifest unless its owner is
/// the folder's owner, root, or the user of this process. Otherwise any user who can write to the
/// folder could decide what others' files must contain.
Outcome<OpenedFile> open_manifest(const DrainFolder& folder, Access access);

/// A DrainedRange is the checksum that the bytes [offset, offset + length) of a drained file must
/// have.
struct DrainedRange {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  bool operator==(const DrainedRange&) const = default;
};

/// Joins adjacent ranges into longer ranges, up to limits::kChunkBytesMax. `ranges` must be in the
/// order of their offsets, without overlap.
std::vector<DrainedRange> joined(const std::vector<DrainedRange>& ranges);

}  // namespace stdchk
