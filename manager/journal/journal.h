#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/result.h"
#include "core/runtime/reactor.h"
#include "manager/journal/command.h"
#include "metrics/histogram.h"

namespace stdchk::manager {

/// A Journal stores commands in order, so that a restarted manager can apply them again (rule M7).
///
/// Threads: the reactor's; it calls callbacks there, too, in the order of the appends.
/// Errors: after a failed append every later one fails. The manager must not continue from a state
/// that the disk lacks.
class Journal {
 public:
  using Apply = std::function<Status(const Command&)>;
  using Durable = std::function<void(Status)>;

  virtual ~Journal() = default;
  /// Figures about writing the journal. Any thread.
  struct Figures {
    std::uint64_t records = 0;    ///< durable records
    metrics::Distribution syncs;  ///< seconds that each write took until it was durable
  };
  virtual Figures figures() const { return {}; }
  /// Applies the newest snapshot's commands and all later ones, in order. Called once, first.
  virtual Status load(Reactor& reactor, const Apply& apply) = 0;
  /// Calls `durable` when the command and all commands before it survive a crash.
  virtual void append(const Command& command, Durable durable) = 0;
  /// Returns true when so much was appended since the last snapshot that a new one would make the
  /// next start quicker.
  virtual bool wants_snapshot() const = 0;
  /// Replaces everything appended before by these commands, atomically.
  virtual void write_snapshot(std::vector<Command> commands) = 0;
  /// Makes everything appended before durable. No callback is called after it returns.
  virtual void stop() = 0;
};

}  // namespace stdchk::manager
