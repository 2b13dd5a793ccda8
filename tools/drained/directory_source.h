#pragma once

#include <memory>
#include <string>

#include "tools/base/problem.h"
#include "tools/drained/drained_source.h"

namespace stdchk::tools {

/// Opens a folder of a drain directory.
Outcome<std::unique_ptr<DrainedSource>> open_directory_source(const std::string& path);

}  // namespace stdchk::tools
