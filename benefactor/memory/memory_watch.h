#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benefactor/memory/memory_scopes.h"
#include "benefactor/memory/pressure.h"
#include "core/runtime/reactor.h"

namespace stdchk::benefactor {

/// A MemoryWatch checks whether memory is short. It checks each second, every 100 ms when little is
/// left, and when the kernel signals that tasks begin to wait for memory (PSI).
///
/// Owns: its timer and the descriptors of PSI triggers.
/// Threads: the reactor's; a check reads a few files of /proc and of the control groups.
/// Errors: a kernel without PSI is logged once; amounts of memory are still watched.
class MemoryWatch {
 public:
  /// Called after each check that finds pressure; `why` is a sentence. If it returns false, nothing
  /// was done. Then memory must be short for the whole time again before the next call.
  using OnPressure = std::function<bool(Pressure, const std::string& why)>;

  MemoryWatch(Reactor& reactor, const PressureLimits& limits, MachineFiles files,
              OnPressure on_pressure);
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

 private:
  class Trigger;
  void check_memory();

  Reactor& reactor_;
  MachineFiles files_;
  PressureJudge judge_;
  OnPressure on_pressure_;
  TimerId timer_;
  std::vector<std::unique_ptr<Trigger>> triggers_;
};

}  // namespace stdchk::benefactor
