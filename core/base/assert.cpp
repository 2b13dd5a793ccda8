#include "core/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace stdchk {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: stdchk has a bug: expected %s\n", file, line, expression);
  std::abort();
}

}  // namespace stdchk
