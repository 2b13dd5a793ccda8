#include "fork/library/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kHugeBytes = std::uint64_t{2} << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, of <linux/mman.h> since Linux 6.1

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Reads a line of /proc/self/maps (proc(5)). Returns false for mappings that are no private
/// anonymous memory.
bool read_line(const char* line, Range& range) {
  char access[5] = {}, name[32] = {};
  std::uint64_t inode = 1;
  const int fields = std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*s %" SCNu64 " %31s",
                                 &range.begin, &range.end, access, &inode, name);
  const bool is_named =
      name[0] != '\0' && std::strcmp(name, "[heap]") != 0 && std::strncmp(name, "[anon:", 6) != 0;
  return fields >= 4 && inode == 0 && std::strcmp(access, "rw-p") == 0 && !is_named;
}

/// Tries the advice on memory that the kernel can merge. Returns 0 or an errno.
int probe() {
  void* memory =
      ::mmap(nullptr, 2 * kHugeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno;
  const auto aligned =
      (reinterpret_cast<std::uint64_t>(memory) + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
  auto* first = reinterpret_cast<volatile char*>(aligned);
  *first = 1;
  const int error =
      ::madvise(reinterpret_cast<void*>(aligned), kHugeBytes, kCollapse) == 0 ? 0 : errno;
  ::munmap(memory, 2 * kHugeBytes);
  return error;
}

}  // namespace

int merge_into_huge_pages() {
  if (const int error = probe(); error != 0) return error;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return errno;
  // Reading allocates no memory while the mappings change: the list is made first.
  static Range ranges[4096];
  std::size_t count = 0;
  char line[512];
  while (count < sizeof(ranges) / sizeof(ranges[0]) &&
         std::fgets(line, sizeof(line), maps) != nullptr) {
    Range& range = ranges[count];
    if (read_line(line, range) && range.end - range.begin >= 2 * kHugeBytes) count++;
  }
  std::fclose(maps);
  for (std::size_t i = 0; i < count; i++) {
    const std::uint64_t begin = (ranges[i].begin + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
    const std::uint64_t end = ranges[i].end / kHugeBytes * kHugeBytes;
    for (std::uint64_t at = begin; at < end; at += kHugeBytes) {
      // A range without pages cannot be merged, which is no error.
      if (::madvise(reinterpret_cast<void*>(at), kHugeBytes, kCollapse) != 0 && errno == ENOMEM)
        return ENOMEM;
    }
  }
  return 0;
}

}  // namespace stdchk::fork
