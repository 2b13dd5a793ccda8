#include "fork/library/huge_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

#include "fork/library/memory_ranges.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kHugeBytes = std::uint64_t{2} << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, of <linux/mman.h> since Linux 6.1

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
  static MemoryRange ranges[4096];
  const std::uint32_t count =
      list_memory(2 * kHugeBytes, ranges, sizeof(ranges) / sizeof(ranges[0]));
  for (std::uint32_t i = 0; i < count; i++) {
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
