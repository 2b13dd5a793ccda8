#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/base/clock.h"
#include "transport/verbs/device.h"

namespace stdchk::transport::verbs {

/// A CompletionReader reads the completions of a device in order, and says when its reader may
/// sleep.
///
/// Threads: the reactor's.
class CompletionReader {
 public:
  CompletionReader(Clock& clock, Device& device) : clock_(clock), device_(device) {}

  /// Reads new completions. Returns false when there are none.
  bool read() { return device_.read_completions(waiting_); }
  /// Returns the oldest completion that was read. Nothing: all are handled.
  std::optional<Completion> next();
  /// Drops what a queue pair has received: a later queue pair may get the same number.
  void drop_received(std::uint32_t queue_pair);

  /// Completions were handled in this turn: more may follow at once.
  void note_activity() { last_ = clock_.now(); }
  /// The device has woken the reader, or has a new completion queue: it must be armed again.
  void disarm() { armed_ = false; }
  /// Arms the device, then reads once more. False: there is work, or was until 20 us ago.
  bool may_sleep();

 private:
  Clock& clock_;
  Device& device_;
  std::deque<Completion> waiting_;  ///< read, but not handled yet
  bool armed_ = false;              ///< the next completion wakes Device::wake_fd()
  Time last_{};
};

}  // namespace stdchk::transport::verbs
