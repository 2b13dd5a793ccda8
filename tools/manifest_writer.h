#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "client/filesystem.h"
#include "tools/problem.h"

namespace stdchk::tools {

/// A ManifestWriter writes into the manifests of a drain directory what the pool knows of the files
/// that are drained. A file whose entry it has written it does not ask for again.
///
/// What an earlier manifest says of other files is kept as long as they are in the drain directory:
/// of those that the pool has given up, and of those whose checksums an earlier pool knew. Files
/// whose names are not UTF-8 are left out: JSON has no words for them.
///
/// Threads: one. Limits: an entry in memory for each drained file.
class ManifestWriter {
 public:
  explicit ManifestWriter(std::string drain_directory)
      : drain_directory_(std::move(drain_directory)) {}
  /// The manifests of the folders at and below `path`, for the files there that are drained.
  Outcome<void> write(client::Filesystem& filesystem, const std::string& path,
                      const Attributes& attributes);

 private:
  /// Version and time, by path.
  using Written = std::map<std::string, std::tuple<FileId, std::uint64_t, std::int64_t>>;

  std::string drain_directory_;
  Written written_;
};

}  // namespace stdchk::tools
