#include "core/runtime/confinement.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "tests/support/catch.h"

namespace stdchk {
namespace {

/// Whether `check` holds in a child process that has confined itself.
bool holds_confined(const Needs& needs, const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(confine(needs).has_value() && check() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool refused(long result) { return result == -1 && errno == EPERM; }

/// Makes a child by clone(2) with these flags, without the C library. Returns its end, or -1.
long clone_with(unsigned long flags) {
  const long child = ::syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(0);
  return child < 0 ? child : ::waitpid(static_cast<pid_t>(child), nullptr, 0);
}

/// Makes a child by clone3(2) with these flags and arguments of 64 bytes. Returns its end, or -1.
long clone3_with(std::uint64_t flags) {
  std::array<std::uint64_t, 8> arguments{flags, 0, 0, 0, SIGCHLD, 0, 0, 0};
  const long child = ::syscall(SYS_clone3, arguments.data(), sizeof arguments);
  if (child == 0) ::_exit(0);
  return child < 0 ? child : ::waitpid(static_cast<pid_t>(child), nullptr, 0);
}

/// Runs `work` in a confined child process. Returns the child's standard error.
std::string said_confined(const std::function<void()>& work) {
  std::array<int, 2> pipe{-1, -1};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    if (!confine({})) ::_exit(1);
    work();
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string said;
  std::array<char, 512> part;
  for (ssize_t got = 0; (got = ::read(pipe[0], part.data(), part.size())) > 0;) {
    said.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  return said;
}

std::string refusal_of(long call) {
  return "stdchk: confined: system call " + std::to_string(call) +
         " was refused (EPERM); if this host needs it, start the daemon with --unconfined\n";
}

bool starts_a_program() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/true", "true", nullptr);
    ::_exit(1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a confined process cannot trace, change name spaces, or open raw sockets") {
  if (!filters_system_calls()) {
    WARN("this build filters no system calls");
    return;
  }
  CHECK(holds_confined({}, [] { return refused(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }));
  CHECK(holds_confined({}, [] { return refused(::unshare(CLONE_NEWUSER)); }));
  CHECK(holds_confined({}, [] { return refused(::socket(AF_PACKET, SOCK_RAW, 0)); }));
}

TEST_CASE("a confined process makes no name space with a child, but threads and children") {
  if (!filters_system_calls()) {
    WARN("this build filters no system calls");
    return;
  }
  for (const int space : {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
                          CLONE_NEWPID, CLONE_NEWNET}) {
    INFO("flag " << space);
    const auto flag = static_cast<unsigned long>(space);
    CHECK(holds_confined({}, [&] { return refused(clone_with(flag)); }));
    CHECK(holds_confined({}, [&] { return refused(clone_with(flag | CLONE_NEWUSER)); }));
    CHECK(holds_confined({.programs = true}, [&] { return refused(clone_with(flag)); }));
  }
  const auto lacks_clone3 = [] { return clone3_with(CLONE_NEWUSER) == -1 && errno == ENOSYS; };
  CHECK(holds_confined({}, lacks_clone3));
  CHECK(holds_confined({}, [] { return clone_with(0) > 0; }));
  CHECK(holds_confined({}, [] {
    bool ran = false;
    std::thread([&] { ran = true; }).join();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return ran && child > 0 && ::waitpid(child, nullptr, 0) == child;
  }));
}

TEST_CASE("the first refused call of each number is logged, and later ones are not") {
  if (!filters_system_calls()) {
    WARN("this build filters no system calls");
    return;
  }
  const std::string said = said_confined([] {
    for (int i = 0; i < 3; ++i) ::unshare(CLONE_NEWNS);
    clone_with(CLONE_NEWUSER);
    ::unshare(CLONE_NEWNET);
  });
  CHECK(said == refusal_of(SYS_unshare) + refusal_of(SYS_clone));
  CHECK(said_confined([] { ::getppid(); }).empty());
}

TEST_CASE("a confined process starts a program only when it has said that it needs to") {
  if (!filters_system_calls()) {
    WARN("this build filters no system calls");
    return;
  }
  CHECK(holds_confined({}, [] { return !starts_a_program(); }));
  CHECK(holds_confined({.programs = true}, [] { return starts_a_program(); }));
}

TEST_CASE("threads that run already are confined when a file system has been mounted") {
  if (!filters_system_calls()) {
    WARN("this build filters no system calls");
    return;
  }
  const auto child_is_confined = [](const Needs& needs, const std::function<bool()>& check) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool good = confine_before_mount().has_value();
      std::atomic<int> step{0};
      std::thread early([&] {
        while (step == 0) std::this_thread::yield();
        good &= check() && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
      });
      good &= confine_after_mount(needs).has_value() && check();
      step = 1;
      early.join();
      ::_exit(good ? 0 : 1);
    }
    int status = -1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  };
  CHECK(child_is_confined({}, [] { return refused(::unshare(CLONE_NEWNS)); }));
  CHECK(child_is_confined({}, [] { return refused(::umount2("/nowhere", 0)); }));
  CHECK(child_is_confined({}, [] { return !starts_a_program(); }));
  // The kernel looks for the mount: ENOENT for root, or its own EPERM for a user.
  CHECK(child_is_confined({.unmounts = true}, [] {
    return ::umount2("/nowhere", 0) == -1 && (errno == ENOENT || ::geteuid() != 0);
  }));
}

TEST_CASE("a confined process can do its work, and gains no rights") {
  CHECK(holds_confined({}, [] {
    const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
    const int local = ::socket(AF_UNIX, SOCK_STREAM, 0);
    return tcp >= 0 && local >= 0 && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
  }));
}

}  // namespace stdchk
