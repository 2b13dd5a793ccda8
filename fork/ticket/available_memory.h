#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace stdchk::fork {

/// Returns the bytes that the kernel calls available (MemAvailable, proc_meminfo(5)); 0 if it does
/// not say.
inline std::uint64_t available_bytes() {
  std::ifstream in("/proc/meminfo");
  std::uint64_t kib = 0;
  for (std::string name, rest; in >> name; std::getline(in, rest)) {
    if (name == "MemAvailable:" && in >> kib) break;
  }
  return kib * 1024;
}

}  // namespace stdchk::fork
