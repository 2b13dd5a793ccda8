#include "container/box/fault_copies.h"

#include <fmt/core.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "core/base/process_id.h"

namespace stdchk::container {
namespace {

bool is_userfault(const std::filesystem::path& link) {
  std::error_code failed;
  return std::filesystem::read_symlink(link, failed) == "anon_inode:[userfaultfd]" && !failed;
}

bool is_copy(int own, pid_t process, int number) {
  return ::syscall(SYS_kcmp, ::getpid(), process, KCMP_FILE, own, number) == 0;
}

}  // namespace

void FaultCopies::update() {
  if (!pidfd_) pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  std::vector<Copy> now;
  std::error_code failed;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", process_), failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    if (!is_userfault(entry->path())) continue;
    const int number = std::atoi(entry->path().filename().c_str());
    const auto earlier = std::ranges::find_if(copies_, [&](const Copy& copy) {
      return copy.own && copy.number == number && is_copy(copy.own.get(), process_, number);
    });
    if (earlier != copies_.end()) {
      now.push_back(std::move(*earlier));
      continue;
    }
    const long copy = ::syscall(SYS_pidfd_getfd, pidfd_.get(), number, 0);
    if (copy >= 0) now.push_back({number, Descriptor(static_cast<int>(copy))});
  }
  // An ending process closes its descriptors although memory is missing.
  if (read_process_state(process_).is_ending()) {
    for (Copy& copy : copies_) {
      if (copy.own) now.push_back(std::move(copy));
    }
  }
  copies_ = std::move(now);
}

}  // namespace stdchk::container
