// Calls that open, close and describe descriptors.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "preload/open_files.h"
#include "preload/places.h"
#include "preload/real.h"

using namespace stdchk::preload;

namespace {

OpenFiles& files() { return OpenFiles::all(); }

/// Opens a place of the pool. Returns a descriptor, or -1 with errno set.
int open_place(const std::string& path, int flags, mode_t mode) {
  stdchk_pool* connected = pool();
  if (connected == nullptr) return -1;
  auto opened = std::make_shared<OpenFile>();
  opened->path = path;
  opened->flags = flags;
  opened->process = ::getpid();
  stdchk_attributes found{};
  const bool is_folder = stdchk_stat(connected, path.c_str(), &found) == 0 && S_ISDIR(found.mode);
  if ((flags & O_DIRECTORY) != 0 && !is_folder) {
    errno = found.mode != 0 ? ENOTDIR : ENOENT;
    return -1;
  }
  if (!is_folder || (flags & O_ACCMODE) != O_RDONLY) {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    opened->file = stdchk_open(connected, path.c_str(), flags, mode & ~mask);
    if (opened->file == nullptr) return -1;
  }
  const int fd = files().add(opened);
  if (fd < 0 && opened->file != nullptr) stdchk_abort(opened->file);
  return fd;
}

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

int duplicate(int fd, int made) {
  if (made < 0) return made;
  if (const OpenFilePtr file = files().find(fd)) files().set(made, file);
  return made;
}

/// dup2(2) and dup3(2) close `to` silently first.
void forget(int to) {
  if (const OpenFilePtr last = files().remove(to)) end(*last);
}

/// A private copy of a part of the file: later changes of the file do not show in it.
void* copy_of(OpenFile& file, void* where, size_t bytes, int protection, int flags, off_t offset) {
  if ((flags & MAP_SHARED) != 0 && (protection & PROT_WRITE) != 0) {
    errno = ENODEV;
    return MAP_FAILED;
  }
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE));
  void* memory = STDCHK_REAL(mmap)(where, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
  if (memory == MAP_FAILED) return memory;
  const bool read = file.usable() &&
                    stdchk_pread(file.file, memory, bytes, static_cast<std::uint64_t>(offset)) >= 0;
  if (read && ::mprotect(memory, bytes, protection) == 0) return memory;
  const int error = errno;
  ::munmap(memory, bytes);
  errno = error;
  return MAP_FAILED;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = takes_mode(flags) ? va_arg(more, mode_t) : 0;
  va_end(more);
  const auto place = place_of(path);
  return place ? open_place(*place, flags, mode) : STDCHK_REAL(open)(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = takes_mode(flags) ? va_arg(more, mode_t) : 0;
  va_end(more);
  const auto place = place_of(folder, path);
  return place ? open_place(*place, flags, mode) : STDCHK_REAL(openat)(folder, path, flags, mode);
}

int creat(const char* path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
int creat64(const char* path, mode_t mode) __attribute__((alias("creat")));
// NOLINTBEGIN(bugprone-reserved-identifier): the C library names these functions.
int __open_2(const char* path, int flags) { return open(path, flags); }
int __open64_2(const char* path, int flags) { return open(path, flags); }
int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char* path, int flags) { return openat(folder, path, flags); }
// NOLINTEND(bugprone-reserved-identifier)

int close(int fd) {
  const OpenFilePtr found = files().find(fd);
  if (found == nullptr) return STDCHK_REAL(close)(fd);
  const OpenFilePtr last = files().remove(fd);
  const int ended = last != nullptr && last->process == ::getpid() ? end(*last) : 0;
  const int error = errno;
  STDCHK_REAL(close)(fd);
  errno = error;
  return ended;
}

int dup(int fd) { return duplicate(fd, STDCHK_REAL(dup)(fd)); }

int dup2(int fd, int to) {
  if (fd != to) forget(to);
  return duplicate(fd, STDCHK_REAL(dup2)(fd, to));
}

int dup3(int fd, int to, int flags) {
  if (fd != to) forget(to);
  return duplicate(fd, STDCHK_REAL(dup3)(fd, to, flags));
}

int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  const OpenFilePtr file = files().find(fd);
  if (file != nullptr && command == F_GETFL) return file->flags & ~(O_CREAT | O_EXCL | O_TRUNC);
  const int result = STDCHK_REAL(fcntl)(fd, command, argument);
  const bool made = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  return file != nullptr && made ? duplicate(fd, result) : result;
}
int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list more;
  va_start(more, request);
  void* argument = va_arg(more, void*);
  va_end(more);
  if (files().find(fd) == nullptr) return STDCHK_REAL(ioctl)(fd, request, argument);
  errno = ENOTTY;
  return -1;
}

void* mmap(void* where, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  const OpenFilePtr file = (flags & MAP_ANONYMOUS) != 0 ? nullptr : files().find(fd);
  if (file == nullptr) return STDCHK_REAL(mmap)(where, bytes, protection, flags, fd, offset);
  if (!file->is_folder()) return copy_of(*file, where, bytes, protection, flags, offset);
  errno = ENODEV;
  return MAP_FAILED;
}
void* mmap64(void* where, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept
    __attribute__((alias("mmap")));

}  // extern "C"
