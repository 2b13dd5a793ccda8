#pragma once

#include <string>

namespace stdchk::fork {

/// An ImageParts says where images of memory lie for clones on other hosts, and who reads them
/// there.
struct ImageParts {
  std::string folder;     ///< a folder that all hosts see under this name, for example in a pool
  std::string pool_path;  ///< the same folder from the pool's root, for the page server
  std::string pager;      ///< the page server's socket on the other hosts; empty: no page server
};

}  // namespace stdchk::fork
