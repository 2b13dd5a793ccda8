#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <thread>
#include <utility>

namespace stdchk {

/// A thread that takes no signals: they go to the one that waits for them, never to a worker in the
/// middle of its work. Nor does it take what the kernel raises for its calls, such as SIGPIPE.
inline std::thread start_without_signals(std::function<void()> work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace stdchk
