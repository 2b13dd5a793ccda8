#pragma once

#include <cstdint>

#include "core/base/result.h"
#include "manager/journal/command.h"
#include "manager/state/catalog.h"
#include "manager/state/hard_links.h"

namespace stdchk::manager {

/// A VersionCommands executes commands on the contents of files: commits, drains, evictions, and
/// the files of a snapshot.
///
/// Owns: nothing; the catalog outlives it. Threads: one.
/// Errors: a command that fails changes nothing.
class VersionCommands {
 public:
  explicit VersionCommands(Catalog& catalog)
      : catalog_(catalog), files_(catalog.files), links_(catalog) {}

  Result<Affected> run(const CommitVersion& command);
  Result<Affected> run(const DrainStarted& command);
  Result<Affected> run(const Drained& command);
  Result<Affected> run(const DrainLost& command);
  Result<Affected> run(const Evict& command);
  Result<Affected> run(const Closed& command);
  Result<Affected> run(const RestoreFile& command);

 private:
  /// The files and the directory that a commit concerns.
  struct Target {
    File* file = nullptr;      ///< nullptr: the commit makes the file
    File* parent = nullptr;    ///< of a commit that creates a name: its directory
    File* replaced = nullptr;  ///< the file that has this name until now
  };
  /// The file that lost its name to the committed one.
  struct Replaced {
    FileId id;
    std::uint64_t content = 0;
  };
  Result<Target> check(const CommitVersion& command);
  Replaced create(const CommitVersion& command, Target& target);
  void count_history(const CommitVersion& command, const File& file,
                     const ContentTable::Resolved& written);
  VersionData next_version(const CommitVersion& command, const File& file,
                           const ContentTable::Resolved& written);
  Result<Affected> load(File& file, const CommitVersion& command);
  void restore_content(File& file, const RestoreFile& command);

  Catalog& catalog_;
  FileTable& files_;
  HardLinks links_;
};

}  // namespace stdchk::manager
