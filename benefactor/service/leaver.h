#pragma once

#include <optional>
#include <string>

#include "benefactor/memory/pressure.h"
#include "benefactor/service/service.h"
#include "core/runtime/reactor.h"

namespace stdchk::benefactor {

/// A LeaveTurn is the right to leave because of pressure. At any time it belongs to one benefactor
/// of a pool on a host. If all left at once, no benefactor could take their data. Besides, the
/// memory of a single one may suffice.
///
/// It is a lock (flock(2)) on a shared file, and ends with the process at the latest.
///
/// Owns: the descriptor. Threads: one.
class LeaveTurn {
 public:
  explicit LeaveTurn(std::string file) : file_(std::move(file)) {}
  ~LeaveTurn();
  LeaveTurn(const LeaveTurn&) = delete;
  LeaveTurn& operator=(const LeaveTurn&) = delete;

  /// Returns false while another benefactor has the turn. Returns true if
  /// the file cannot be locked.
  bool take();

 private:
  std::string file_;
  int fd_ = -1;
};

/// A Leaver ends a benefactor. It tells the manager, which then grants nothing more there and has
/// all sole copies copied elsewhere. The Leaver waits for that.
///
/// Owns: nothing that outlives a call. Give the turn back after the memory.
/// Threads: the reactor's.
class Leaver {
 public:
  /// The time for hand_over() when the OOM killer is near.
  static constexpr std::chrono::seconds kCriticalTime{5};

  Leaver(Reactor& reactor, Service& service, Duration leave_time, LeaveTurn& turn)
      : reactor_(reactor), service_(service), leave_time_(leave_time), turn_(turn) {}
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;

  /// Memory is short: stops the reactor if this benefactor has to leave. During a hand-over it
  /// shortens the remaining time when the pressure becomes critical. Returns false when it does not
  /// leave now: others are leaving, or there is no manager to have data copied. Then the caller
  /// should measure the pressure for the whole time again.
  bool on_pressure(Pressure pressure, const std::string& why);

  /// Returns true when on_pressure() has decided to leave.
  bool must_leave() const { return pressure_ != Pressure::kNone; }

  /// Runs the reactor until nothing is left to be copied elsewhere, the time is over, or a signal
  /// comes. The first SIGTERM only requests the hand-over.
  void hand_over();

 private:
  bool may_leave(Pressure pressure);
  void end_after(Duration time);

  Reactor& reactor_;
  Service& service_;
  Duration leave_time_;
  LeaveTurn& turn_;
  Pressure pressure_ = Pressure::kNone;
  std::optional<Time> waits_since_;  ///< since when it waits for its turn
  bool handing_over_ = false;
  bool ended_ = false;  ///< the hand-over has ended, complete or out of time
  bool done_ = false;
  TimerId end_;
};

}  // namespace stdchk::benefactor
