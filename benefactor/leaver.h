#pragma once

#include <optional>
#include <string>

#include "benefactor/pressure.h"
#include "benefactor/service.h"
#include "core/reactor.h"

namespace stdchk::benefactor {

/// A Turn is the right to leave because of pressure, which one benefactor of a pool on a host has
/// at a time: when all left at once, nobody would be there to hand over to, and one may be enough.
///
/// It is a lock (flock(2)) on a file that they share, and ends with the process at the latest.
///
/// Owns: the descriptor. Threads: one.
class Turn {
 public:
  explicit Turn(std::string file) : file_(std::move(file)) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  /// False while another one has it. True, too, where the file cannot be locked.
  bool take();

 private:
  std::string file_;
  int fd_ = -1;
};

/// A Leaver ends a benefactor: it tells the manager, which then grants nothing more there and has
/// copied elsewhere what only this one has, and waits for that.
///
/// Owns: nothing that outlives a call. The turn must be given back after the memory.
/// Threads: the reactor's.
class Leaver {
 public:
  /// Of hand_over(), when the OOM killer is near.
  static constexpr std::chrono::seconds kCriticalTime{5};

  Leaver(Reactor& reactor, Service& service, Duration leave_time, Turn& turn)
      : reactor_(reactor), service_(service), leave_time_(leave_time), turn_(turn) {}
  Leaver(const Leaver&) = delete;
  Leaver& operator=(const Leaver&) = delete;

  /// Memory is short. Stops the reactor when this benefactor is to leave; in a hand-over, leaves
  /// less time when the pressure becomes critical. False: not now, because others leave or because
  /// there is no manager that could have anything copied. Then memory should be found short for the
  /// whole time again.
  bool on_pressure(Pressure pressure, const std::string& why);

  /// on_pressure() has found that it must leave.
  bool must_leave() const { return pressure_ != Pressure::kNone; }

  /// Runs the reactor until nothing is left that could be copied elsewhere, the time is over, or a
  /// signal comes; the one that asks for a hand-over changes nothing.
  void hand_over();

 private:
  bool may_leave(Pressure pressure);
  void end_after(Duration time);

  Reactor& reactor_;
  Service& service_;
  Duration leave_time_;
  Turn& turn_;
  Pressure pressure_ = Pressure::kNone;
  std::optional<Time> waits_since_;  ///< for its turn
  bool handing_over_ = false;
  bool ended_ = false;  ///< the hand-over, for good or because its time is over
  bool done_ = false;
  TimerId end_;
};

}  // namespace stdchk::benefactor
