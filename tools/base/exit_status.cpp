#include "tools/base/exit_status.h"

#include <cstdio>

#include "tools/base/show.h"

namespace stdchk::tools {

void tell(const std::string& text) {
  const std::string line = "stdchk: " + shown_message(text) + "\n";
  (void)std::fputs(line.c_str(), stderr);  // fmt::print() would throw
}

int complain(const std::string& text) {
  tell(text);
  return kExitError;
}

}  // namespace stdchk::tools
