#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <chrono>
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

/// Processor time that the calling thread has used: clock_gettime(2), CLOCK_THREAD_CPUTIME_ID.
inline std::chrono::nanoseconds thread_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace stdchk
