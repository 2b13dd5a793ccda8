#include "tools/base/mounts.h"

#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/files/mount_table.h"
#include "tools/base/process.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

bool uses_directory(const fs::path& process, const std::string& directory) {
  auto is_inside = [&](const fs::path& link) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(link, ignored).string();
    return target == directory || target.starts_with(directory + "/");
  };
  if (is_inside(process / "cwd") || is_inside(process / "exe") || is_inside(process / "root")) {
    return true;
  }
  std::error_code ignored;
  for (const auto& fd : fs::directory_iterator(process / "fd", ignored)) {
    if (is_inside(fd.path())) return true;
  }
  return false;
}

}  // namespace

MountInfo mount_unasked(const std::string& directory) {
  MountInfo found;
  if (const auto entry = find_mount(directory)) {
    found = {MountState::kAlive, entry->type, entry->source, mount_id(directory)};
  }
  return found;
}

MountInfo mount_at(const std::string& directory) {
  MountInfo found = mount_unasked(directory);
  // The kernel may answer stat(2) for a dead mount from its cache, but not statvfs(2).
  struct statvfs space {};
  if (found.state == MountState::kAlive && found.type.starts_with("fuse") &&
      ::statvfs(directory.c_str(), &space) != 0 && (errno == ENOTCONN || errno == ECONNABORTED)) {
    found.state = MountState::kDead;
  }
  return found;
}

Outcome<void> unmount(const std::string& directory, std::uint64_t id, bool lazy) {
  if (mount_id(directory) != id) {
    return problem("{} is not unmounted: another file system was mounted there meanwhile",
                   directory);
  }
  if (::geteuid() == 0) {
    if (::umount2(directory.c_str(), lazy ? MNT_DETACH : 0) == 0) return {};
    return problem("{} cannot be unmounted: {}", directory, std::strerror(errno));
  }
  std::vector<std::string> command{"fusermount3", "-u"};
  if (lazy) command.emplace_back("-z");
  command.push_back(directory);
  auto done = run_command(command, "", 10s);
  if (!done) return problem(done.error());
  if (done->status == 0) return {};
  return problem("{} cannot be unmounted: {}", directory, done->err);
}

std::string users_of(const std::string& directory) {
  std::string users;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!uses_directory(entry.path(), directory)) continue;
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    users += fmt::format("{}{} (pid {})", users.empty() ? "" : ", ", name, pid);
  }
  return users;
}

}  // namespace stdchk::tools
