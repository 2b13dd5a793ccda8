#include "fuse/mountpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "core/base/log.h"
#include "core/files/mount_table.h"

extern char** environ;

namespace stdchk::mount {
namespace {

bool in_path(std::string_view program) {
  const char* variable = getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/usr/bin:/bin";
  while (!rest.empty()) {
    std::size_t colon = rest.find(':');
    std::string candidate = fmt::format("{}/{}", rest.substr(0, colon), program);
    if (access(candidate.c_str(), X_OK) == 0) return true;
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  }
  return false;
}

bool unmount(const std::string& path) {
  if (geteuid() == 0) return umount2(path.c_str(), MNT_DETACH) == 0;
  std::string program = "fusermount3";
  std::string flags = "-uz";
  std::string target = path;
  char* arguments[] = {program.data(), flags.data(), target.data(), nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, program.c_str(), nullptr, nullptr, arguments, environ) != 0) return false;
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_empty(const std::string& path) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return true;  // the caller's check of access reports the reason
  bool empty = true;
  while (const dirent* entry = readdir(directory)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") empty = false;
  }
  closedir(directory);
  return empty;
}

}  // namespace

bool is_source_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._:/-").find(c) != std::string_view::npos;
  });
}

bool is_dead(const std::string& path) {
  // The kernel may answer stat() for a dead mount from its cache, but never statvfs().
  struct statvfs space {};
  return statvfs(path.c_str(), &space) != 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

bool unmount_dead(const std::string& path) {
  const std::uint64_t dead = mount_id(path);
  if (!is_dead(path)) return true;
  // Another process of this user may have taken the dead mount away, and mounted there, by now.
  if (mount_id(path) != dead) return true;
  log::warning("{} is a dead mount, left by a process that is gone; it is unmounted.", path);
  return unmount(path);
}

void abort_mount(const std::string& path) {
  // MNT_FORCE ends the connection even if the mount is busy and stays (EBUSY); see umount2(2).
  if (geteuid() == 0 && (umount2(path.c_str(), MNT_FORCE) == 0 || errno == EBUSY)) return;
  const auto mount = find_mount(path);
  if (!mount) return;
  const std::string control = fmt::format("/sys/fs/fuse/connections/{}/abort", mount->minor);
  if (std::ofstream(control) << "1" << std::flush) return;
  log::error(
      "The connection of {} cannot be ended; as root, type: mount -t fusectl none "
      "/sys/fs/fuse/connections; echo 1 >{}",
      path, control);
}

Outcome<void> prepare_mountpoint(const std::string& path) {
  if (!unmount_dead(path)) {
    return problem(fmt::format(
        "{} is a mount whose process is gone, and it cannot be unmounted; run `fusermount3 -uz {}` "
        "as its owner, or `umount -l {}` as root.",
        path, path, path));
  }
  struct stat info {};
  const int failed = stat(path.c_str(), &info) == 0 ? 0 : errno;
  if (failed == ENOENT) {
    return problem(
        fmt::format("The mount point {} does not exist; make it with `mkdir {}`.", path, path));
  }
  if (failed != 0) {
    return problem(
        fmt::format("The mount point {} cannot be examined: {}.", path, std::strerror(failed)));
  }
  if (!S_ISDIR(info.st_mode)) {
    return problem(
        fmt::format("The mount point {} is not a directory; name an empty directory.", path));
  }
  struct stat parent {};
  if (stat((path + "/..").c_str(), &parent) == 0 && parent.st_dev != info.st_dev) {
    return problem(fmt::format(
        "{} is a mount point in use; unmount it with `fusermount3 -u {}`, or name another "
        "directory.",
        path, path));
  }
  if (!is_empty(path)) {
    return problem(fmt::format(
        "The mount point {} is not empty, and a mount would hide its files; name an empty "
        "directory.",
        path));
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return problem(
        fmt::format("This user cannot write to the mount point {}; name another directory.", path));
  }
  return {};
}

Outcome<void> check_fuse_available() {
  int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    int failed = errno;
    if (failed == ENOENT || failed == ENODEV || failed == ENXIO) {
      return problem(
          "There is no /dev/fuse: load the kernel module (`modprobe fuse`), or, in a container, "
          "pass the device in (`--device /dev/fuse --cap-add SYS_ADMIN`).");
    }
    return problem(
        fmt::format("/dev/fuse cannot be opened ({}): give this user read and write access to it.",
                    std::strerror(failed)));
  }
  ::close(fd);
  if (geteuid() != 0 && !in_path("fusermount3")) {
    return problem(
        "fusermount3 was not found, and a user who is not root cannot mount without it: install "
        "the package fuse3.");
  }
  return {};
}

void raise_read_ahead(const std::string& path, unsigned kilobytes) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return;
  std::ofstream setting(
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", major(info.st_dev), minor(info.st_dev)));
  if (setting) setting << kilobytes << '\n';
}

}  // namespace stdchk::mount
