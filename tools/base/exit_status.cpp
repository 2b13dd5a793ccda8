#include "tools/base/exit_status.h"

#include <fmt/core.h>

#include <cstdio>

namespace stdchk::tools {

int complain(const std::string& text) {
  fmt::print(stderr, "stdchk: {}\n", text);
  return kExitError;
}

}  // namespace stdchk::tools
