#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stdchk {

/// The file in each folder of the drain directory that says what the drained files there must hold.
inline constexpr const char* kManifestName = ".stdchk-manifest";

/// The manifest of a folder, or the beginning of one whose writer works on it or was killed.
inline bool is_manifest(std::string_view file_name) {
  const std::string_view name = kManifestName;
  return file_name.starts_with(name) &&
         (file_name.size() == name.size() || file_name[name.size()] == '.');
}

/// What the bytes [offset, offset + length) of a drained file must be.
struct DrainedRange {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  bool operator==(const DrainedRange&) const = default;
};

/// The same in few ranges: what lies side by side becomes one, up to limits::kChunkBytesMax.
/// `ranges` are in the order of their offsets and do not overlap.
std::vector<DrainedRange> joined(const std::vector<DrainedRange>& ranges);

}  // namespace stdchk
