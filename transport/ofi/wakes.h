#pragma once

#include <rdma/fi_eq.h>

#include "core/base/clock.h"
#include "core/base/result.h"

namespace stdchk::transport::ofi {

/// A Wakes is the descriptor by which libfabric's queues wake the reactor.
///
/// libfabric 1.17 leaves the descriptor of the event queue readable for ever, with an empty queue,
/// when a stranger's connection ends early. A reactor that sleeps on the descriptor would spin.
/// A Wakes that sees this polls events at intervals for 1 s.
/// Owns: the epoll descriptor. A closed queue leaves it by itself.
class Wakes {
 public:
  Wakes() = default;
  ~Wakes();
  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;

  Status open(fid_eq& events);
  int fd() const { return epoll_fd_; }
  /// Makes a queue wake the reactor. Returns the queue's descriptor.
  Result<int> add(fid& queue);

  /// The event queue had an event.
  void note_event() { idle_wakes_ = 0; }
  /// To be called before each sleep, when the event queue is empty.
  void check_events(Time now);
  /// True while events do not wake the reactor. Poll them at kInterval.
  bool by_time() const { return by_time_; }
  static constexpr Duration kInterval = std::chrono::milliseconds(10);

 private:
  int epoll_fd_ = -1;
  fid* events_ = nullptr;
  int events_fd_ = -1;
  unsigned idle_wakes_ = 0;
  bool by_time_ = false;
  Time woken_from_{};  ///< when events may wake the reactor again
};

}  // namespace stdchk::transport::ofi
