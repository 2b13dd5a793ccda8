#include "fork/library/frozen_copy.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fork/library/daemon_call.h"
#include "fork/library/host_copy.h"

namespace stdchk::fork {
namespace {

using local::Kind;
using local::Record;

void say_failed(int daemon, std::uint32_t id, int error, const char* what) {
  Record record;
  record.kind = Kind::kStartFail;
  record.id = id;
  record.error = error;
  const int n =
      std::snprintf(record.value, sizeof(record.value), "%s: %s", what, std::strerror(error));
  record.value_bytes = n > 0 ? static_cast<std::uint32_t>(n) : 0;
  send_record(daemon, record);
}

/// In the clone: enters the sandbox and goes on in the program.
[[noreturn]] void become_clone(FrozenCopy* frozen, int daemon, int sandbox, std::uint32_t id) {
  if (::setns(sandbox, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
    say_failed(daemon, id, errno, "the clone cannot enter its namespaces");
    ::_exit(1);
  }
  char what[PATH_MAX + 64];
  if (const int error = frozen->files.open_anew(what, sizeof(what)); error != 0) {
    say_failed(daemon, id, error, what);
    ::_exit(1);
  }
  Record record;
  record.kind = Kind::kRunning;
  record.id = id;
  if (send_record(daemon, record) != 0) ::_exit(1);
  ::close(daemon);
  ::close(sandbox);
  ::sigaction(SIGCHLD, &frozen->on_child, nullptr);
  frozen->id = static_cast<int>(id);
  ::longjmp(frozen->back, 1);
}

/// In the frozen copy: introduces itself to the daemon.
[[noreturn]] void begin_service(FrozenCopy* frozen) {
  const int daemon = connect_daemon();
  Record record;
  record.kind = Kind::kSource;
  record.ticket = frozen->ticket;
  record.token[0] = frozen->token[0];
  record.token[1] = frozen->token[1];
  if (daemon < 0 || send_record(daemon, record) != 0) ::_exit(1);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;  // clones that end leave no zombies
  ::sigaction(SIGCHLD, &ignored, &frozen->on_child);
  serve(frozen, daemon);
}

/// Runs in the parent's memory, on a stack of its own, while the parent waits. So the frozen copy
/// is no child of the parent, which would get a signal and a zombie for it.
int fork_copy(void* argument) {
  auto* frozen = static_cast<FrozenCopy*>(argument);
  const pid_t copy = ::fork();
  if (copy == 0) begin_service(frozen);
  frozen->fork_errno = copy < 0 ? errno : 0;
  ::_exit(0);
}

}  // namespace

void serve(FrozenCopy* frozen, int daemon) {
  Record record;
  for (;;) {
    int sandbox = -1;
    if (receive_record(daemon, record, &sandbox) != 0) ::_exit(0);
    if (record.kind == Kind::kImage) {
      make_host_copy(frozen, daemon);
      continue;
    }
    if (record.kind != Kind::kStart || sandbox < 0) ::_exit(0);
    const std::uint32_t id = record.id;
    pid_t clone = -1;
    if (::setns(sandbox, CLONE_NEWPID) == 0) clone = ::fork();
    if (clone == 0) become_clone(frozen, daemon, sandbox, id);
    const int error = errno;
    ::close(sandbox);
    if (clone < 0) {
      say_failed(daemon, id, error, "the clone cannot be forked");
      continue;
    }
    record = Record();
    record.kind = Kind::kStarted;
    record.id = id;
    if (send_record(daemon, record) != 0) ::_exit(0);
  }
}

int freeze(FrozenCopy* frozen, char* stack, std::uint64_t stack_bytes) {
  const pid_t helper = ::clone(fork_copy, stack + stack_bytes, CLONE_VM | CLONE_VFORK, frozen);
  if (helper < 0) return errno;
  while (::waitpid(helper, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return frozen->fork_errno;
}

}  // namespace stdchk::fork
