#include "core/files/durable.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace stdchk {

Status sync_path(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno("sync");
  const bool good = ::fsync(fd) == 0 || errno == EINVAL;
  const Status status = good ? Status() : fail_errno("sync");
  ::close(fd);
  return status;
}

Status make_durable_directory(const std::string& path, mode_t mode) {
  const bool made = ::mkdir(path.c_str(), mode) == 0;
  if (!made && errno != EEXIST) return fail_errno("mkdir");
  // ".." also leads to the right parent if the path ends in a symbolic link.
  const Status synced = sync_path(path + "/..");
  return made ? synced : Status();
}

Status make_durable_directories(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::path at;
  for (const fs::path& part : fs::path(path)) {
    at /= part;
    if (!fs::is_directory(at, code)) STDCHK_TRY(make_durable_directory(at, 0777));
  }
  return {};
}

}  // namespace stdchk
