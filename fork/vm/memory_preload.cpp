// libstdchk-vm-memory: LD_PRELOAD brings it into QEMU. The machine's memory then comes from
// stdchk-pager page by page. The program stdchk-vm sets STDCHK_VM_IMAGE (the image's path in the
// pool), STDCHK_VM_BYTES (its size) and STDCHK_PAGER (the socket). QEMU maps its memory file once
// with that size, privately, at an address that it has chosen.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "fork/pager/stdchk_map.h"

namespace {

/// stdchk_map_image maps, too.
thread_local bool is_mapping = false;

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

}  // namespace

// Two names of the C library's function. Labels give both names, because the C library's header
// renames the first name to the second.
extern "C" {
__attribute__((visibility("default"))) void* vm_mmap(void* where, std::size_t bytes, int protection,
                                                     int flags, int fd,
                                                     off_t offset) __asm__("mmap");
__attribute__((visibility("default"))) void* vm_mmap64(void* where, std::size_t bytes,
                                                       int protection, int flags, int fd,
                                                       off_t offset) __asm__("mmap64");

void* vm_mmap(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  const char *image = std::getenv("STDCHK_VM_IMAGE"), *size = std::getenv("STDCHK_VM_BYTES");
  const bool is_private = (flags & MAP_FIXED) != 0 && (flags & MAP_SHARED) == 0;
  if (!is_mapping && image != nullptr && size != nullptr && fd >= 0 && is_private &&
      bytes == std::strtoull(size, nullptr, 10)) {
    return map_image(where, image);
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the system call's result is an address.
  return reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, protection, flags, fd, offset));
}

void* vm_mmap64(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  return vm_mmap(where, bytes, protection, flags, fd, offset);
}
}  // extern "C"
