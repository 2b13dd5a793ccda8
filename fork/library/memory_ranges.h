#pragma once

#include <cstdint>

namespace stdchk::fork {

/// A MemoryRange is a part of a process's address space.
struct MemoryRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Lists private anonymous memory of this process that can be written, in mappings of at least
/// `bytes_min` (proc(5), /proc/self/maps). Returns the number of ranges, at most `most`.
std::uint32_t list_memory(std::uint64_t bytes_min, MemoryRange* ranges, std::uint32_t most);

}  // namespace stdchk::fork
