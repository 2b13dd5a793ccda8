#include "core/files/mount_lock.h"

#include <fmt/core.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/files/mount_table.h"

namespace stdchk {
namespace {

using namespace std::chrono_literals;

constexpr auto kPause = 20ms;

tl::unexpected<Problem> refuse(std::string text, Code code = Code::kRefused) {
  return problem(code, "mount_lock", 0, std::move(text));
}

/// False: another process has the lock. On a file system without flock, the lock excludes no
/// process.
bool lock(int fd, Duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

Outcome<MountLock> MountLock::take(const std::string& mount, Duration patience) {
  if (const auto there = find_mount(mount)) {
    return refuse(fmt::format("{} is in use: {} ({}) is mounted there; choose another mount point",
                              mount, there->source, there->type));
  }
  auto folder = OwnFolder::open(mount, kMountRules);
  if (!folder) return refuse(std::move(folder.error().text));
  if (!lock(folder->fd(), patience)) {
    return refuse(fmt::format("another process of stdchk has the mount point {}", mount),
                  Code::kBusy);
  }
  // Another process may have mounted a file system between the first check and the lock.
  if (mount_id(folder->fd()) != mount_id(mount)) {
    return refuse(fmt::format("{} was mounted on by another process just now", mount), Code::kBusy);
  }
  if (!folder->names().empty()) {
    return refuse(fmt::format(
        "the mount point {} is not empty, and a mount would hide its files; name an empty "
        "directory",
        mount));
  }
  return MountLock(std::move(*folder));
}

}  // namespace stdchk
