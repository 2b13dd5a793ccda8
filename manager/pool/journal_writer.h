#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/lifetime.h"
#include "core/base/result.h"
#include "core/runtime/reactor.h"
#include "manager/journal/command.h"
#include "manager/journal/journal.h"
#include "manager/state/state.h"

namespace stdchk::manager {

/// A JournalReplicas stores the journal's records on other machines, too.
class JournalReplicas {
 public:
  JournalReplicas() = default;
  virtual ~JournalReplicas() = default;
  JournalReplicas(const JournalReplicas&) = delete;
  JournalReplicas& operator=(const JournalReplicas&) = delete;
  /// Sends the command, which was applied as number `sequence`.
  virtual void append(std::uint64_t sequence, const Command& command) = 0;
  /// Calls `done` when all replicas that count have that record. It calls `done`
  /// at once when no replica counts. Keeps the order of the calls.
  virtual void when_stored(std::uint64_t sequence, std::function<void()> done) = 0;
};

/// A JournalWriter applies commands to the state, journals them, and says when they are durable. It
/// frees the space of deleted extents only then: otherwise a crash could bring back a map whose
/// bytes were overwritten.
///
/// Owns: neither the journal, nor the state, nor the replicas.
/// Threads: the reactor's.
/// Errors: after the journal has failed or close() was called, every command fails with kReadOnly.
class JournalWriter {
 public:
  using Done = std::function<void(const Result<Affected>&)>;
  struct Hooks {
    std::function<void(const Error&)> on_failure;      ///< called once
    std::function<void()> on_durable;                  ///< after each durable command
    std::function<void(const FreedExtent&)> on_freed;  ///< the extent's space is free now
  };
  JournalWriter(Journal& journal, State& state, Hooks hooks);

  /// Applies the journal's records to the state. Call it once, first.
  Status load(Reactor& reactor);
  /// Counts later commands as durable only after these replicas have stored them.
  void replicate_to(JournalReplicas& replicas) { replicas_ = &replicas; }
  /// Ends all callbacks, and lets the journal finish.
  void stop();
  /// Refuses all further commands. Returns false when they are refused already.
  bool close() { return !std::exchange(failed_, true); }
  bool failed() const { return failed_; }

  /// Applies the command now and journals it. Calls `done` when it is durable or has failed.
  void execute(Command command, Done done);
  /// The number of commands of this start so far.
  std::uint64_t appended() const { return appended_; }
  /// The number of these commands that are durable.
  std::uint64_t durable() const { return durable_; }
  /// Calls `call` when everything that was applied until now is durable. Never calls it when the
  /// journal fails.
  void when_durable(std::function<void()> call);
  /// Returns true when the command that made this change of the mirror queue is durable.
  bool is_mirror_change_durable(std::uint64_t change);
  /// Takes the extents that the state has freed, and frees those whose commands are durable.
  void settle_freed();
  /// Returns true while extents wait to become free.
  bool frees_extents() const { return !to_free_.empty(); }
  /// Calls `visit(freed)` for each extent that waits to become free.
  template <class Visit>
  void for_each_freeing(Visit visit) const {
    for (const auto& [sequence, freed] : to_free_) {
      for (const FreedExtent& one : freed) visit(one);
    }
  }

  /// Writes a snapshot when the journal wants one, and watches whether commands become durable.
  /// The manager calls it once in each tick.
  void run();
  /// Returns true when new commands would wait in vain for durability, as earlier ones have done
  /// for the whole `time`. `tick` is the time between calls of run().
  bool is_stuck(Duration tick, Duration time) const { return stuck_ticks_ * tick >= time; }

 private:
  void on_durable(std::uint64_t sequence, const Status& status);
  void write_snapshot();

  Journal& journal_;
  State& state_;
  const Hooks hooks_;
  JournalReplicas* replicas_ = nullptr;
  Lifetime lifetime_;
  bool loaded_ = false;
  bool failed_ = false;
  std::uint64_t appended_ = 0;
  std::uint64_t durable_ = 0;
  std::uint64_t durable_before_ = 0;  ///< durable_ at the last tick
  /// Successive ticks without progress of durable_ although commands wait.
  unsigned stuck_ticks_ = 0;
  std::deque<std::pair<std::uint64_t, std::function<void()>>> at_durable_;
  std::uint64_t mirror_newest_ = 0;
  /// Number of a mirrored change -> number of its command.
  std::map<std::uint64_t, std::uint64_t> mirror_appended_;
  /// Extents freed by commands up to a number.
  std::deque<std::pair<std::uint64_t, std::vector<FreedExtent>>> to_free_;
};

}  // namespace stdchk::manager
