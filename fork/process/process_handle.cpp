#include "fork/process/process_handle.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

namespace stdchk::fork {
namespace {

// Linux 6.5 and later; the headers of Debian 12 do not have them. unix(7), socket(7).
constexpr int kPassPidfd = 76;       // SO_PASSPIDFD
constexpr int kPeerPidfd = 77;       // SO_PEERPIDFD
constexpr int kPidfdOfSender = 0x4;  // SCM_PIDFD

Descriptor open_process(pid_t pid) {
  if (pid <= 0) return {};
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

ProcessHandle::ProcessHandle(pid_t pid) : pid_(pid), pidfd_(open_process(pid)) {}

bool ProcessHandle::is_alive() const {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  return pidfd_ && ::poll(&ended, 1, 0) == 0;
}

void ProcessHandle::kill() const {
  if (pidfd_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

ssize_t ProcessHandle::read(void* to, std::uint64_t address, std::size_t bytes) const {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  const ssize_t n = ::process_vm_readv(pid_, &local, 1, &remote, 1, 0);
  const int error = errno;
  // A process that lives now had its pid during the call.
  const bool was_it = is_alive();
  errno = was_it ? error : ESRCH;
  return was_it ? n : -1;
}

Descriptor ProcessHandle::open_pagemap() const {
  Descriptor file(::open(fmt::format("/proc/{}/pagemap", pid_).c_str(), O_RDONLY | O_CLOEXEC));
  // A process that lives now had its pid when the file was opened.
  return is_alive() ? std::move(file) : Descriptor();
}

std::uint64_t ProcessHandle::pid_namespace() const {
  struct stat facts {};
  const bool found = ::stat(fmt::format("/proc/{}/ns/pid", pid_).c_str(), &facts) == 0;
  return found && is_alive() ? facts.st_ino : 0;
}

Process peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0) {
    return nullptr;
  }
  int pidfd = -1;
  bytes = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &bytes) == 0) {
    return std::make_shared<ProcessHandle>(peer.pid, Descriptor(pidfd));
  }
  if (errno == ENOPROTOOPT) return std::make_shared<ProcessHandle>(peer.pid);
  return std::make_shared<ProcessHandle>(peer.pid, Descriptor());
}

bool ask_for_senders(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, kPassPidfd, &on, sizeof(on));
  return ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0;
}

Process take_sender(msghdr& message) {
  pid_t pid = 0;
  std::optional<Descriptor> pidfd;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET) continue;
    if (head->cmsg_type == SCM_CREDENTIALS) {
      ucred who{};
      std::memcpy(&who, CMSG_DATA(head), sizeof(who));
      pid = who.pid;
    } else if (head->cmsg_type == kPidfdOfSender) {
      int fd = -1;  // a negative errno when the sender has ended
      std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
      pidfd.emplace(std::max(fd, -1));
    }
  }
  if (pid <= 0) return nullptr;
  if (!pidfd) return std::make_shared<ProcessHandle>(pid);
  return std::make_shared<ProcessHandle>(pid, std::move(*pidfd));
}

}  // namespace stdchk::fork
