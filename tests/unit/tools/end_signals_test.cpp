#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "core/base/clock.h"
#include "core/runtime/reactor.h"
#include "tests/support/catch.h"
#include "tools/base/process.h"

namespace stdchk::tools {
namespace {

/// Runs `body` in a child process, because handlers of signals belong to the whole process. Returns
/// what `body` has returned; 128 + N when signal N ended the child.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("signals that ask for the end are counted by their kinds") {
  CHECK(in_child([] {
          notice_end_signals();
          const bool none = !asked_to_end() && end_signals().first == 0;
          for (const int signal : {SIGHUP, SIGTERM, SIGHUP, SIGINT, SIGTERM, SIGHUP}) {
            ::raise(signal);
          }
          const EndSignals came = end_signals();
          const bool all = came.terms == 2 && came.interrupts == 1 && came.hangups == 3;
          return none && all && came.count() == 6 && came.first == SIGHUP && asked_to_end() ? 7 : 1;
        }) == 7);
}

TEST_CASE("a lost terminal that nohup ignores stays ignored") {
  CHECK(in_child([] {
          ::signal(SIGHUP, SIG_IGN);
          notice_end_signals();
          ::raise(SIGHUP);
          return asked_to_end() ? 1 : 7;
        }) == 7);
}

TEST_CASE("a signal that asks for the end stops the reactor") {
  CHECK(in_child([] {
          static SystemClock clock;
          static Reactor reactor(clock);
          stop_on_end_signals(reactor);
          reactor.schedule_after(std::chrono::milliseconds(1), [] { ::raise(SIGHUP); });
          reactor.run();
          return end_signals().hangups == 1 ? 7 : 1;
        }) == 7);
}

}  // namespace stdchk::tools
