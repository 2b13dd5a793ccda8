#include "fork/process/process_handle.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

const std::array<char, 8> kMemory{"memory"};

/// Starts a child that sleeps until a signal kills it. Where `pid` is not 0, it gets this pid.
pid_t start_child(pid_t pid = 0) {
  clone_args how{};
  how.exit_signal = SIGCHLD;
  if (pid != 0) {
    how.set_tid = reinterpret_cast<std::uint64_t>(&pid);
    how.set_tid_size = 1;
  }
  const long child = ::syscall(SYS_clone3, &how, sizeof(how));
  if (child != 0) return static_cast<pid_t>(child);
  for (;;) ::pause();
}

void end_child(pid_t child) {
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
}

std::uint64_t address_of_memory() { return reinterpret_cast<std::uint64_t>(kMemory.data()); }

TEST_CASE("a handle reads the memory of its process, and says so when the process has ended") {
  const pid_t child = start_child();
  REQUIRE(child > 0);
  const ProcessHandle handle(child);
  CHECK(handle.is_alive());
  CHECK(handle.pid_namespace() == ProcessHandle(::getpid()).pid_namespace());
  std::array<char, kMemory.size()> read{};
  CHECK(handle.read(read.data(), address_of_memory(), read.size()) == ssize_t{read.size()});
  CHECK(read == kMemory);
  CHECK(handle.read(read.data(), 0, read.size()) == -1);
  CHECK(errno == EFAULT);
  ::kill(child, SIGKILL);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(handle.is_alive());  // a zombie
  CHECK(handle.pid_namespace() == 0);
  end_child(child);
  CHECK(handle.read(read.data(), address_of_memory(), read.size()) == -1);
  CHECK(errno == ESRCH);
  CHECK_FALSE(ProcessHandle(child).is_alive());
  CHECK_FALSE(ProcessHandle(0).is_alive());
}

TEST_CASE("a handle does not reach the process that gets the pid of its process") {
  const pid_t child = start_child();
  REQUIRE(child > 0);
  const ProcessHandle handle(child);
  end_child(child);
  const pid_t newcomer = start_child(child);
  if (newcomer < 0 && errno == EPERM) return;  // only root can choose a pid
  REQUIRE(newcomer == child);
  std::array<char, kMemory.size()> read{};
  const iovec local{read.data(), read.size()};
  const iovec remote{const_cast<char*>(kMemory.data()), read.size()};
  CHECK(::process_vm_readv(child, &local, 1, &remote, 1, 0) == ssize_t{read.size()});
  CHECK_FALSE(handle.is_alive());
  CHECK(handle.pid_namespace() == 0);
  CHECK(handle.read(read.data(), address_of_memory(), read.size()) == -1);
  CHECK(errno == ESRCH);
  handle.kill();
  CHECK(::waitpid(newcomer, nullptr, WNOHANG) == 0);
  CHECK(ProcessHandle(newcomer).is_alive());
  end_child(newcomer);
}

/// Receives a byte, and returns its sender.
Process receive(int socket) {
  alignas(cmsghdr) std::array<char, 128> room{};
  char byte = 0;
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  REQUIRE(::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
  return take_sender(message);
}

TEST_CASE("the sender of a message has ended, and is not taken for another process") {
  std::array<int, 2> sockets{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  const Descriptor daemon(sockets[0]), theirs(sockets[1]);
  REQUIRE(ask_for_senders(daemon.get()));
  REQUIRE(::send(theirs.get(), "a", 1, 0) == 1);
  const Process own = receive(daemon.get());
  REQUIRE(own);
  CHECK(own->pid() == ::getpid());
  CHECK(own->is_alive());
  CHECK(peer_of(daemon.get())->pid() == ::getpid());

  const pid_t child = ::fork();
  if (child == 0) ::_exit(::send(theirs.get(), "b", 1, 0) == 1 ? 0 : 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  const pid_t newcomer = start_child(child);
  if (newcomer < 0 && errno == EPERM) return;  // only root can choose a pid
  const Process sender = receive(daemon.get());
  REQUIRE(sender);
  CHECK(sender->pid() == child);
  CHECK_FALSE(sender->is_alive());
  end_child(newcomer);
}

}  // namespace
}  // namespace stdchk::fork
