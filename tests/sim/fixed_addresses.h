#pragma once

#include <sys/personality.h>
#include <unistd.h>

namespace stdchk::sim {

/// Starts this program again without random addresses (personality(2)), unless they are fixed
/// already. Containers ordered by address would make runs of one seed differ.
inline void fix_addresses(char** arguments) {
  const int before = ::personality(0xFFFFFFFF);
  if (before >= 0 && (before & ADDR_NO_RANDOMIZE) == 0 &&
      ::personality(static_cast<unsigned long>(before) | ADDR_NO_RANDOMIZE) >= 0) {
    ::execv("/proc/self/exe", arguments);
  }
}

}  // namespace stdchk::sim
