#pragma once

#include <string_view>

namespace stdchk {

/// The file in each folder of the drain directory that says what the drained files there must hold.
inline constexpr const char* kManifestName = ".stdchk-manifest";

/// The manifest of a folder, or the beginning of one whose writer works on it or was killed.
inline bool is_manifest(std::string_view file_name) {
  const std::string_view name = kManifestName;
  return file_name.starts_with(name) &&
         (file_name.size() == name.size() || file_name[name.size()] == '.');
}

}  // namespace stdchk
