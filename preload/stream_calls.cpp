// fopen(3) by fopencookie(3): the C library's streams call the kernel and not read(2) of this
// library.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "preload/open_files.h"
#include "preload/places.h"
#include "preload/real.h"

using namespace stdchk::preload;

namespace {

int descriptor_of(void* cookie) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(cookie));
}

ssize_t stream_read(void* cookie, char* bytes, size_t count) {
  return ::read(descriptor_of(cookie), bytes, count);
}
ssize_t stream_write(void* cookie, const char* bytes, size_t count) {
  const ssize_t written = ::write(descriptor_of(cookie), bytes, count);
  return written < 0 ? 0 : written;  // 0 is how fopencookie(3) tells an error
}
int stream_seek(void* cookie, off64_t* offset, int whence) {
  const off_t at = ::lseek(descriptor_of(cookie), *offset, whence);
  if (at < 0) return -1;
  *offset = at;
  return 0;
}
int stream_close(void* cookie) { return ::close(descriptor_of(cookie)); }

std::optional<int> flags_of(const char* mode) {
  const bool both = std::strchr(mode, '+') != nullptr;
  const int access = both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  const int more = (std::strchr(mode, 'x') != nullptr ? O_EXCL : 0) |
                   (std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0);
  switch (mode[0]) {
    case 'r':
      return access | more;
    case 'w':
      return access | more | O_CREAT | O_TRUNC;
    case 'a':
      return access | more | O_CREAT | O_APPEND;
    default:
      return std::nullopt;
  }
}

FILE* stream_of(int fd, const char* mode) {
  constexpr cookie_io_functions_t kCalls = {stream_read, stream_write, stream_seek, stream_close};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the cookie is a number.
  FILE* stream =
      ::fopencookie(reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)), mode, kCalls);
  if (stream != nullptr) ::setvbuf(stream, nullptr, _IOFBF, 1 << 16);
  return stream;
}

}  // namespace

extern "C" {

FILE* fopen(const char* path, const char* mode) {
  if (!place_of(path)) return STDCHK_REAL(fopen)(path, mode);
  const auto flags = flags_of(mode);
  if (!flags) {
    errno = EINVAL;
    return nullptr;
  }
  const int fd = ::open(path, *flags, 0666);
  if (fd < 0) return nullptr;
  FILE* stream = stream_of(fd, mode);
  if (stream == nullptr) ::close(fd);
  return stream;
}
FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));

FILE* fdopen(int fd, const char* mode) noexcept {
  return OpenFiles::all().find(fd) ? stream_of(fd, mode) : STDCHK_REAL(fdopen)(fd, mode);
}

}  // extern "C"
