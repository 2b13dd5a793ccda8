#pragma once

#include <functional>
#include <string>

#include "core/result.h"
#include "manager/command.h"

namespace stdchk::manager {

/// Shows what a drain directory has, as commands for an empty state: files become drained versions
/// without copies in memory. Left-over temporary files are removed. `.stdchk-drain` is not shown.
/// Limits: blocks while it reads the tree; a path longer than limits::kPathBytesMax is left out.
Status import_drained(const std::string& directory, const std::function<void(Command)>& emit);

}  // namespace stdchk::manager
