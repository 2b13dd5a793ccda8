#pragma once

#include <string>
#include <vector>

#include "tools/base/problem.h"

namespace stdchk::tools {

/// A BaseSystem is what containers see below their own changes.
struct BaseSystem {
  std::string root;                      ///< absolute path of the file system
  std::vector<std::string> environment;  ///< "NAME=VALUE" of an OCI bundle
};

/// `path` is a folder with a file system, or an OCI bundle: a folder with config.json
/// (https://github.com/opencontainers/runtime-spec, config.md: root.path, process.env), as
/// umoci(1) unpacks images. `apptainer build --sandbox` makes a plain folder.
Outcome<BaseSystem> read_base_system(const std::string& path);

}  // namespace stdchk::tools
