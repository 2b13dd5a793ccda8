#include "container/box/fault_copies.h"

#include <fmt/core.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace stdchk::container {
namespace {

/// PF_EXITING of the kernel's include/linux/sched.h: the process closes its descriptors.
constexpr unsigned long kIsEnding = 0x4;

bool is_ending(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  // proc(5): the name in parentheses may have spaces; flags are the seventh field behind it.
  std::size_t at = text.rfind(')');
  for (int field = 0; field < 7 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  return at == std::string::npos || (std::strtoul(text.c_str() + at, nullptr, 10) & kIsEnding) != 0;
}

bool is_userfault(const std::filesystem::path& link) {
  std::error_code failed;
  return std::filesystem::read_symlink(link, failed) == "anon_inode:[userfaultfd]" && !failed;
}

bool is_copy(int own, pid_t process, int number) {
  return ::syscall(SYS_kcmp, ::getpid(), process, KCMP_FILE, own, number) == 0;
}

}  // namespace

void FaultCopies::update(pid_t process) {
  const Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  std::vector<Copy> now;
  std::error_code failed;
  std::filesystem::directory_iterator entry(fmt::format("/proc/{}/fd", process), failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    if (!is_userfault(entry->path())) continue;
    const int number = std::atoi(entry->path().filename().c_str());
    const auto earlier = std::ranges::find_if(copies_, [&](const Copy& copy) {
      return copy.own && copy.number == number && is_copy(copy.own.get(), process, number);
    });
    if (earlier != copies_.end()) {
      now.push_back(std::move(*earlier));
      continue;
    }
    const long copy = ::syscall(SYS_pidfd_getfd, pidfd.get(), number, 0);
    if (copy >= 0) now.push_back({number, Descriptor(static_cast<int>(copy))});
  }
  // An ending process closes its descriptors although memory is missing.
  if (is_ending(process)) {
    for (Copy& copy : copies_) {
      if (copy.own) now.push_back(std::move(copy));
    }
  }
  copies_ = std::move(now);
}

}  // namespace stdchk::container
