#include "tools/base/exit_status.h"

#include <fmt/core.h>

#include <cstdio>

#include "tools/base/show.h"

namespace stdchk::tools {

int complain(const std::string& text) {
  fmt::print(stderr, "stdchk: {}\n", shown_message(text));
  return kExitError;
}

}  // namespace stdchk::tools
