#pragma once

#include <string_view>

#include "core/base/result.h"
#include "manager/journal/command.h"
#include "manager/state/catalog.h"
#include "manager/state/hard_links.h"

namespace stdchk::manager {

/// A LinkCommands executes commands that make hard links and special files.
///
/// Owns: nothing; the catalog outlives it. Threads: one.
/// Errors: a command that fails changes nothing.
class LinkCommands {
 public:
  explicit LinkCommands(Catalog& catalog)
      : catalog_(catalog), files_(catalog.files), links_(catalog) {}

  Result<Affected> run(const AddNode& command);
  Result<Affected> run(const AddLink& command);
  Result<Affected> run(const RestoreLink& command);

 private:
  void hold(File& file, const File& parent, std::string_view name);

  Catalog& catalog_;
  FileTable& files_;
  HardLinks links_;
};

}  // namespace stdchk::manager
