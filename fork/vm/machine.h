#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "fork/vm/monitor.h"
#include "fork/vm/qemu_command.h"

namespace stdchk::fork::vm {

/// A Machine is one running QEMU.
///
/// Owns: the process and its folder; the destructor ends both. The kernel ends the process when
/// this process ends. Threads: the thread that started it. Each call blocks for at most a minute.
/// Errors: a sentence.
class Machine {
 public:
  /// Makes the folder and starts QEMU. It answers only after connect().
  static Outcome<Machine> start(const QemuCommand& command, const Place& place);
  Machine(Machine&&) = default;
  Machine& operator=(Machine&& other) noexcept;
  ~Machine();

  Outcome<void> connect();
  Outcome<void> pause();
  Outcome<void> resume();
  /// Writes the state of processors and devices, the descriptor, to a file. The machine is paused.
  /// A machine with Memory::kPrivate writes its memory, too.
  Outcome<void> save(const std::string& path);
  /// Takes the state from a file and runs. The place says waits_for_state. load() begins,
  /// wait_loaded() ends.
  Outcome<void> load(const std::string& path, Memory saved);
  Outcome<void> wait_loaded();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  const Place& place() const { return place_; }
  /// The last lines that QEMU wrote, for errors.
  std::string last_words() const;

 private:
  Machine(Place place, pid_t pid, Descriptor pidfd)
      : place_(std::move(place)), pid_(pid), pidfd_(std::move(pidfd)) {}
  Outcome<void> execute_command(const std::string& command);
  Outcome<void> ignore_shared(bool on);
  void end();

  Place place_;
  pid_t pid_ = -1;
  Descriptor pidfd_;
  std::optional<Monitor> monitor_;
};

}  // namespace stdchk::fork::vm
