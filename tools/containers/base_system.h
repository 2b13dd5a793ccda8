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

/// `path` is a folder with a file system, as `apptainer build --sandbox` makes it, or an OCI
/// bundle. A bundle is a folder with config.json, as umoci(1) unpacks images. Source: root.path and
/// process.env in config.md of https://github.com/opencontainers/runtime-spec.
Outcome<BaseSystem> read_base_system(const std::string& path);

}  // namespace stdchk::tools
