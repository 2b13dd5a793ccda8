#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/reactor.h"
#include "core/result.h"
#include "manager/command.h"
#include "metrics/histogram.h"

namespace stdchk::manager {

/// A Journal keeps commands in order, so that a new manager can apply them again (rule M7).
///
/// Threads: the reactor's; callbacks are made there, too, in the order of the appends.
/// Errors: after a failed append every later one fails: the manager must not go on from a state
/// that
///   is not on disk.
class Journal {
 public:
  using Apply = std::function<Status(const Command&)>;
  using Durable = std::function<void(Status)>;

  virtual ~Journal() = default;
  /// What writing it has taken so far. Any thread.
  struct Figures {
    std::uint64_t records = 0;    ///< that are durable
    metrics::Distribution syncs;  ///< seconds that each write took until it was durable
  };
  virtual Figures figures() const { return {}; }
  /// Gives the newest snapshot's commands and those after it, in order. Called once, first.
  virtual Status load(Reactor& reactor, const Apply& apply) = 0;
  /// `durable` is called when the command, and all before it, survive a crash.
  virtual void append(const Command& command, Durable durable) = 0;
  /// So much was appended since the last snapshot that another one makes the next start quicker.
  virtual bool wants_snapshot() const = 0;
  /// Replaces everything that was appended before by these commands, as one step.
  virtual void write_snapshot(std::vector<Command> commands) = 0;
  /// No callback is made after it returns; what was appended before is durable.
  virtual void stop() = 0;
};

}  // namespace stdchk::manager
