// libstdchk-vm-memory: LD_PRELOAD brings it into QEMU. The program stdchk-vm sets STDCHK_VM_BYTES,
// the size of the machine's memory. QEMU maps its memory file once with that size, privately, at an
// address that it has chosen.
//
// With STDCHK_VM_IMAGE (the image's path in the pool) and STDCHK_PAGER (the socket), the memory
// comes from stdchk-pager page by page.
//
// When the guest gives up pages by a balloon device, QEMU punches holes into its memory file,
// although other machines have mapped it. This library maps zeros over the pages instead, in this
// machine only. The guest's next use of the pages fetches nothing.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "fork/pager/stdchk_map.h"

namespace {

/// stdchk_map_image maps, too.
thread_local bool is_mapping = false;

/// The machine's memory. `where` is set last.
std::atomic<char*> memory_where{nullptr};
std::size_t memory_bytes = 0;
int memory_file = -1;

void* map_image(void* where, const char* image) {
  stdchk_map_options options;
  stdchk_map_options_init(&options);
  options.address = where;
  options.protection = PROT_READ | PROT_WRITE;
  is_mapping = true;
  void* memory = stdchk_map_image(image, &options, nullptr);
  const int error = errno;
  is_mapping = false;
  if (memory != nullptr) return memory;
  std::fprintf(stderr, "stdchk: the machine's memory %s cannot be mapped: %s\n", image,
               stdchk_map_error());
  errno = error;
  return MAP_FAILED;
}

void* map(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the system call's result is an address.
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, protection, flags, fd, offset));
}

/// Replaces a part of the machine's memory by zeros. Its guest does not use these pages now.
int give_up(char* where, std::size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (map(where, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return -1;
  ::madvise(where, bytes, MADV_DONTFORK);  // QEMU does so with all memory
  return 0;
}

}  // namespace

// Two names of each function of the C library. Labels give both names, because the C library's
// header renames the first name to the second.
extern "C" {
__attribute__((visibility("default"))) void* vm_mmap(void* where, std::size_t bytes, int protection,
                                                     int flags, int fd,
                                                     off_t offset) __asm__("mmap");
__attribute__((visibility("default"))) void* vm_mmap64(void* where, std::size_t bytes,
                                                       int protection, int flags, int fd,
                                                       off_t offset) __asm__("mmap64");
__attribute__((visibility("default"))) int vm_fallocate(int fd, int mode, off_t offset,
                                                        off_t bytes) __asm__("fallocate");
__attribute__((visibility("default"))) int vm_fallocate64(int fd, int mode, off_t offset,
                                                          off_t bytes) __asm__("fallocate64");

void* vm_mmap(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  const char *image = std::getenv("STDCHK_VM_IMAGE"), *size = std::getenv("STDCHK_VM_BYTES");
  const bool is_private = (flags & MAP_FIXED) != 0 && (flags & MAP_SHARED) == 0;
  const bool is_memory = !is_mapping && size != nullptr && fd >= 0 && is_private &&
                         bytes == std::strtoull(size, nullptr, 10);
  void* const mapped = is_memory && image != nullptr
                           ? map_image(where, image)
                           : map(where, bytes, protection, flags, fd, offset);
  if (is_memory && mapped != MAP_FAILED) {
    memory_bytes = bytes;
    memory_file = fd;
    memory_where = static_cast<char*>(mapped);
  }
  return mapped;
}

void* vm_mmap64(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  return vm_mmap(where, bytes, protection, flags, fd, offset);
}

int vm_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  char* const where = memory_where;
  if (where == nullptr || fd != memory_file || (mode & FALLOC_FL_PUNCH_HOLE) == 0)
    return static_cast<int>(::syscall(SYS_fallocate, fd, mode, offset, bytes));
  const auto from = static_cast<std::size_t>(offset), count = static_cast<std::size_t>(bytes);
  if (offset < 0 || bytes <= 0 || from > memory_bytes || count > memory_bytes - from) {
    errno = EINVAL;
    return -1;
  }
  return give_up(where + from, count);
}

int vm_fallocate64(int fd, int mode, off_t offset, off_t bytes) {
  return vm_fallocate(fd, mode, offset, bytes);
}
}  // extern "C"
