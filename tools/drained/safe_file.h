#pragma once

#include <string>

#include "tools/base/problem.h"
#include "tools/drained/file_groups.h"

namespace stdchk::tools {

/// Writes which set is safe, and its time, as one line of JSON, for schedulers and scripts. A
/// reader finds the old or the new text, whole. The file's own time (st_mtime) is the set's time.
Outcome<void> save_safe_set(const FileGroup& set, const std::string& path);

}  // namespace stdchk::tools
