#include "core/runtime/confinement.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
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
