#include "core/runtime/daemon.h"

#include <csignal>
#include <cstdlib>

#include "core/base/log.h"
#include "core/runtime/sanitized.h"

namespace stdchk {
namespace {

// Globals, because signal handlers take no arguments.
std::atomic<bool> ending{false};
std::atomic<Reactor*> running{nullptr};
std::atomic<int> first_signal{0};

}  // namespace

const std::atomic<bool>& end_on_signals(Reactor& reactor) {
  running = &reactor;
  for (const int signal : {SIGTERM, SIGINT}) {
    std::signal(signal, [](int number) {
      int none = 0;
      first_signal.compare_exchange_strong(none, number);
      ending = true;
      running.load()->stop();
    });
  }
  std::signal(SIGPIPE, SIG_IGN);
  return ending;
}

int ended_by() { return first_signal; }

void let_crashes_end_the_process() {
// The sanitizers must see the signal first, to report it.
#if !defined(STDCHK_SANITIZED)
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) std::signal(signal, SIG_DFL);
#endif
}

int fail_with(const std::string& sentence) {
  log::error("{}", sentence);
  return EXIT_FAILURE;
}

}  // namespace stdchk
