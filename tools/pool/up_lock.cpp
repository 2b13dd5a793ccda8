#include "tools/pool/up_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <sstream>

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

/// Reads who the owner of the lock is. The owner writes that right after it got the lock, and a
/// killed owner's text names a process that is gone.
std::string owner_of(int fd) {
  constexpr int kLooksMax = 50;
  for (int look = 0; look < kLooksMax; ++look) {
    std::array<char, 1024> text{};
    if (::pread(fd, text.data(), text.size() - 1, 0) > 0) {
      pid_t pid = 0;
      std::istringstream words(text.data());
      words.ignore(4);  // "pid "
      if (words >> pid && ::kill(pid, 0) == 0) return text.data();
    }
    sleep_for(20ms);
  }
  return "it has not said who it is";
}

}  // namespace

Outcome<UpLock> UpLock::take(const PoolRecord& record) {
  const auto folder = OwnFolder::make(user_folder(), kStateRules);
  if (!folder) return UpLock(-1);
  const std::string name =
      std::filesystem::path(default_state_directory(record.mount)).filename().string();
  const int fd = ::openat(folder->fd(), (name + ".lock").c_str(),
                          O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string owner = owner_of(fd);
    ::close(fd);
    return problem("another stdchk up is at work for {}: {}", record.mount, owner);
  }
  UpLock lock(fd);
  if (fd < 0) return lock;
  const std::string self =
      fmt::format("pid {} of {}, state directory {}, since {}", record.starter.pid,
                  user_text(::geteuid()), record.directory, record.created);
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, self.data(), self.size(), 0);
  return lock;
}

UpLock::~UpLock() {
  if (fd_ < 0) return;
  (void)!::ftruncate(fd_, 0);
  ::close(fd_);
}

}  // namespace stdchk::tools
