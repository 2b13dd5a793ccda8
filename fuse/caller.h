#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/process_id.h"

namespace stdchk::mount {

/// A CallerState is the state of the process behind a FLUSH.
enum class CallerState : std::uint8_t {
  kRunning,  ///< the process called close(), or ends by exit(): its file is complete
  kKilled,   ///< a signal ends the process: its file is incomplete
  kUnseen,   ///< the process is in another pid namespace, or gone
};

CallerState state_of_caller(const ProcessState& process);

/// A CallerInspector finds the state of processes behind FLUSH requests.
///
/// execve(2) closes descriptors under a lock that readers of /proc/PID need on some kernels. A read
/// of /proc then waits until the FLUSH is answered. So another thread goes on with a request whose
/// read takes too long.
///
/// Owns: the thread that watches reads. Threads: any.
class CallerInspector {
 public:
  using Done = std::function<void(CallerState)>;
  using Read = std::function<CallerState(std::int32_t pid, std::uint32_t uid)>;

  /// `read` replaces the reader of /proc in tests.
  explicit CallerInspector(Read read = {}, Duration answer_max = std::chrono::milliseconds(200));
  ~CallerInspector();
  CallerInspector(const CallerInspector&) = delete;
  CallerInspector& operator=(const CallerInspector&) = delete;

  /// Calls `done` once with the state of process or thread `pid` of user `uid`, both as in the
  /// request, and returns after that. The state is kUnseen for pid 0. Without an answer of the
  /// kernel within `answer_max` the process is in execve(2), which is a kind of kRunning: then
  /// another thread calls `done`.
  void inspect(std::int32_t pid, std::uint32_t uid, const Done& done);

 private:
  struct Question {
    std::chrono::steady_clock::time_point since;
    const Done* done = nullptr;
    /// Calls `done` in the place of the reading thread. The watcher's while the Question is in
    /// `open_`, afterwards the reading thread's.
    std::thread taken_over;
  };
  void watch();

  const Read read_;
  const Duration answer_max_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Question*> open_ STDCHK_GUARDED_BY(mutex_);
  bool is_used_ STDCHK_GUARDED_BY(mutex_) =
      false;  ///< a thread has asked since the watcher looked last
  bool watcher_sleeps_ STDCHK_GUARDED_BY(mutex_) = false;
  bool stops_ STDCHK_GUARDED_BY(mutex_) = false;
  std::thread watcher_ STDCHK_GUARDED_BY(mutex_);  ///< started by the first question
};

}  // namespace stdchk::mount
