#include "fork/library/open_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stdchk::fork {
namespace {

constexpr int kListenQueue = 128;

bool remember_file(OpenFile& file) {
  char link[64];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", file.fd);
  const ssize_t n = ::readlink(link, file.path, sizeof(file.path) - 1);
  if (n <= 0 || file.path[0] != '/') return false;
  file.path[n] = '\0';
  struct stat open {
  }, named{};
  // A file without a name, or with another file at its name, cannot be opened anew.
  if (::fstat(file.fd, &open) != 0 || ::stat(file.path, &named) != 0) return false;
  if (open.st_dev != named.st_dev || open.st_ino != named.st_ino) return false;
  file.position = S_ISREG(open.st_mode) ? ::lseek(file.fd, 0, SEEK_CUR) : 0;
  return true;
}

bool remember_socket(OpenFile& file) {
  const auto option = [&](int name) {
    int value = 0;
    socklen_t bytes = sizeof(value);
    return ::getsockopt(file.fd, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
  };
  file.domain = option(SO_DOMAIN);
  if (file.domain != AF_INET && file.domain != AF_INET6) return false;
  file.is_socket = true;
  file.type = option(SO_TYPE);
  file.protocol = option(SO_PROTOCOL);
  file.listens = option(SO_ACCEPTCONN) == 1;
  file.address_bytes = sizeof(file.address);
  if (::getsockname(file.fd, reinterpret_cast<sockaddr*>(&file.address), &file.address_bytes) !=
      0) {
    file.address_bytes = 0;
  }
  return true;
}

/// Whether the clone binds its new socket: a port that the program chose, not one of a connection
/// that it made.
bool is_bound(const OpenFile& file) {
  return file.listens || (file.type == SOCK_DGRAM && file.address.sin6_port != 0);
}

int open_socket(const OpenFile& file) {
  const int s = ::socket(file.domain, file.type | (file.flags & O_NONBLOCK ? SOCK_NONBLOCK : 0),
                         file.protocol);
  if (s < 0 || !is_bound(file)) return s;
  const int on = 1;
  ::setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 address = file.address;  // sockaddr_in has the port at the same offset
  if (file.domain == AF_INET)
    reinterpret_cast<sockaddr_in*>(&address)->sin_addr.s_addr = INADDR_ANY;
  else
    address.sin6_addr = in6addr_any;
  if (::bind(s, reinterpret_cast<const sockaddr*>(&address), file.address_bytes) != 0 ||
      (file.listens && ::listen(s, kListenQueue) != 0)) {
    const int error = errno;
    ::close(s);
    errno = error;
    return -1;
  }
  return s;
}

int open_file(const OpenFile& file) {
  const int fd = ::open(file.path, file.flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC));
  if (fd >= 0 && file.position > 0) ::lseek(fd, file.position, SEEK_SET);
  return fd;
}

}  // namespace

void OpenFiles::remember() {
  count_ = 0;
  if (::getcwd(folder_, sizeof(folder_)) == nullptr) std::strcpy(folder_, "/");
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd <= 2 || fd == ::dirfd(folder) || count_ == kCountMax)
      continue;
    OpenFile& file = files_[count_];
    file = OpenFile();
    file.fd = fd;
    file.flags = ::fcntl(fd, F_GETFL);
    file.descriptor = ::fcntl(fd, F_GETFD);
    struct stat s {};
    if (file.flags < 0 || (file.flags & O_PATH) != 0 || ::fstat(fd, &s) != 0) continue;
    const bool is_known = S_ISSOCK(s.st_mode)                        ? remember_socket(file)
                          : S_ISREG(s.st_mode) || S_ISDIR(s.st_mode) ? remember_file(file)
                                                                     : false;
    if (is_known) count_++;
  }
  ::closedir(folder);
}

int OpenFiles::open_anew(char* failed, std::uint32_t failed_bytes) const {
  if (::chdir(folder_) != 0) {
    std::snprintf(failed, failed_bytes, "the working folder %s", folder_);
    return errno;
  }
  for (std::uint32_t i = 0; i < count_; i++) {
    const OpenFile& file = files_[i];
    const int fd = file.is_socket ? open_socket(file) : open_file(file);
    if (fd < 0) {
      const int error = errno;
      std::snprintf(failed, failed_bytes, "%s", file.is_socket ? "an Internet socket" : file.path);
      return error;
    }
    ::dup3(fd, file.fd, (file.descriptor & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0);
    ::close(fd);
  }
  return 0;
}

}  // namespace stdchk::fork
