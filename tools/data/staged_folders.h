#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/problem.h"
#include "tools/drained/drained_source.h"

namespace stdchk::tools {

/// A StagedFolders makes folders of the pool as they are in a DrainedSource: with the same mode,
/// owner and time of modification.
///
/// A folder that is in the pool already keeps its attributes. Links of the source and of the
/// pool are not followed.
///
/// Owns: what it has made, by path. Threads: one. Limits: an entry in memory for each folder.
class StagedFolders {
 public:
  /// `from` becomes the folder `place` below `to` of the pool. An empty
  /// place means `to` itself. `filesystem` and `from` must outlive this.
  StagedFolders(client::Filesystem& filesystem, const DrainedSource& from, FileId to,
                const std::string& place);

  /// Returns the pool's folder for the folder `below` of `from`, and makes it if it is absent. An empty
  /// `below` is `from` itself.
  Outcome<FileId> folder(const std::string& below);
  /// Gives the folders that were made their times. To be called when all files are loaded, because
  /// each new name changes the time of its folder.
  Outcome<void> set_times();

  std::size_t made() const { return made_.size(); }

 private:
  struct Made {
    FileId id;
    std::string path;  ///< in the pool
    std::int64_t mtime_ns = 0;
  };
  Outcome<FileId> make(FileId parent, const std::filesystem::path& path);
  /// Returns the status of the drained folder that becomes `path`; nothing for a folder above the
  /// place, and for what is no folder.
  std::optional<struct stat> drained(const std::filesystem::path& path) const;

  client::Filesystem& filesystem_;
  const DrainedSource& from_;
  const std::filesystem::path place_;
  std::map<std::filesystem::path, FileId> known_;  ///< by path below `to`
  std::vector<Made> made_;                         ///< each folder after the folder above it
};

}  // namespace stdchk::tools
