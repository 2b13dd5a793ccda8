#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "manager/journal/command.h"
#include "manager/state/catalog.h"
#include "manager/state/hard_links.h"

namespace stdchk::manager {

/// A NameCommands executes commands on names, attributes and sets of images.
///
/// Owns: nothing; the catalog outlives it. Threads: one.
/// Errors: a command that fails changes nothing.
class NameCommands {
 public:
  explicit NameCommands(Catalog& catalog)
      : catalog_(catalog), files_(catalog.files), links_(catalog) {}

  Result<Affected> run(const AddDirectory& command);
  Result<Affected> run(const AddSymlink& command);
  Result<Affected> run(const RemoveName& command);
  Result<Affected> run(const RenameName& command);
  Result<Affected> run(const ChangeAttributes& command);
  Result<Affected> run(const ChangeXattr& command);
  Result<Affected> run(const SetPolicy& command);
  Result<Affected> run(const SetLatest& command);
  Result<Affected> run(const BeginGeneration& command);
  Result<Affected> run(const NameHeld& command);

 private:
  Result<Affected> exchange(File& from, File& to, const RenameName& command);
  void mirror_rename(File& file, const std::string& from, const std::string& to,
                     const File* replaced);
  void mirror_exchange(File& a, const std::string& path_a, File& b, const std::string& path_b);
  void withhold_exchanged(File& from, File& to, const RenameName& command);
  void withhold_moved(File& moved, const std::string& from);
  void count_pointer(File& file, const File& parent, std::string_view name);

  Catalog& catalog_;
  FileTable& files_;
  HardLinks links_;
};

}  // namespace stdchk::manager
