#include "fork/library/memory_ranges.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace stdchk::fork {
namespace {

/// Reads a line of /proc/self/maps. Returns false for mappings that are no private anonymous
/// memory.
bool read_line(const char* line, MemoryRange& range) {
  char access[5] = {}, name[32] = {};
  std::uint64_t inode = 1;
  const int fields = std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*s %" SCNu64 " %31s",
                                 &range.begin, &range.end, access, &inode, name);
  const bool is_named =
      name[0] != '\0' && std::strcmp(name, "[heap]") != 0 && std::strncmp(name, "[anon:", 6) != 0;
  return fields >= 4 && inode == 0 && std::strcmp(access, "rw-p") == 0 && !is_named;
}

}  // namespace

std::uint32_t list_memory(std::uint64_t bytes_min, MemoryRange* ranges, std::uint32_t most) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return 0;
  std::uint32_t count = 0;
  char line[512];
  while (count < most && std::fgets(line, sizeof(line), maps) != nullptr) {
    if (read_line(line, ranges[count]) && ranges[count].end - ranges[count].begin >= bytes_min)
      count++;
  }
  std::fclose(maps);
  return count;
}

}  // namespace stdchk::fork
