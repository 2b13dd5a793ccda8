#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A ManifestWriter records drained files in the manifests of a drain directory, from what the pool
/// knows. It asks only once for each file.
///
/// Entries of other files stay while the files are in the drain directory. Such files were given up
/// by the pool, or come from an earlier pool that knew their checksums. Files whose names are not
/// UTF-8 are left out, because JSON cannot express them.
///
/// Threads: one. Limits: an entry in memory for each drained file.
class ManifestWriter {
 public:
  explicit ManifestWriter(std::string drain_directory)
      : drain_directory_(std::move(drain_directory)) {}
  /// Writes the manifests of the folders at and below `path`, for the drained files there.
  Outcome<void> write(client::Filesystem& filesystem, const std::string& path,
                      const Attributes& attributes);

 private:
  /// File, version and time, by path.
  using Written = std::map<std::string, std::tuple<FileId, std::uint64_t, std::int64_t>>;

  std::string drain_directory_;
  Written written_;
};

}  // namespace stdchk::tools
