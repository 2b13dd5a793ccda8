#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace stdchk {

/// Starts a thread that blocks all signals. The thread that waits for signals gets them, never a
/// worker in the middle of its work. Signals that the kernel raises for the worker's own calls,
/// such as SIGPIPE, are blocked, too.
inline std::thread start_without_signals(std::function<void()> work) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

/// Returns the processor time used by the calling thread: clock_gettime(2),
/// CLOCK_THREAD_CPUTIME_ID.
inline std::chrono::nanoseconds thread_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace stdchk
