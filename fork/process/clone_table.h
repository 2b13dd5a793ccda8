#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace stdchk::fork {

/// How a clone ended. The numbers equal those of sf_end in stdchk_fork.h.
enum class End : std::uint32_t { kExited = 0, kDied = 1, kKilled = 2, kFailed = 3 };

enum class CloneState : std::uint8_t { kReserved, kStarting, kStarted, kRunning, kEnded };

struct Clone {
  std::uint32_t id = 0;
  CloneState state = CloneState::kReserved;
  End end = End::kFailed;  ///< `end`, `status` and `value` count in state kEnded
  std::int32_t status = 0;
  std::string value;
};

enum class TicketState : std::uint8_t {
  kReserved,  ///< sf_request_ticket was answered
  kFreezing,  ///< sf_clone was called, the frozen copy has not come
  kStarting,  ///< the frozen copy makes the clones
  kCloned,    ///< each clone was started or has failed; the frozen copy is not needed
};

/// A CloneTable is the state of one ticket and its clones. fork/README.md has the table of
/// transitions.
///
/// Threads: one. Errors: kBusy for a call that the state does not allow.
/// Not: processes and sockets. The server acts on what this object says.
class CloneTable {
 public:
  /// Clones with ids above `local` are made on other hosts: this host's frozen copy is not asked
  /// for them.
  explicit CloneTable(std::uint32_t count) : CloneTable(count, count) {}
  CloneTable(std::uint32_t count, std::uint32_t local);

  TicketState state() const { return state_; }
  const std::vector<Clone>& clones() const { return clones_; }
  /// nullptr: no clone has that id.
  const Clone* find(std::uint32_t id) const;

  /// sf_clone was called. kBusy: the ticket was used already.
  Status freeze();
  /// The frozen copy has come. kBusy: it was not expected.
  Status source_came();
  /// The next clone that the frozen copy has to make, which then is kStarting.
  std::optional<std::uint32_t> next_to_start();
  /// The frozen copy has made the clone's process.
  Status started(std::uint32_t id);
  /// The clone is in its sandbox and runs the program.
  Status running(std::uint32_t id);
  /// The frozen copy is lost: the clones that are no processes yet have failed.
  void source_lost(const std::string& why);
  /// Returns false when the clone had ended already: the first end counts.
  bool ended(std::uint32_t id, End end, std::int32_t status, std::string value);

  bool all_ended() const;
  std::uint32_t count_in(CloneState state) const;

 private:
  Clone* at(std::uint32_t id);
  void settle();

  std::uint32_t local_ = 0;
  TicketState state_ = TicketState::kReserved;
  std::vector<Clone> clones_;
};

}  // namespace stdchk::fork
