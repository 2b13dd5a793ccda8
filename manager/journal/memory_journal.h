#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/lifetime.h"
#include "manager/journal/journal.h"

namespace stdchk::manager {

/// A MemoryJournal keeps commands in memory, for tests and the simulator. It outlives a Service,
/// and can drop what was not synced, as a power cut does.
class MemoryJournal final : public Journal {
 public:
  /// False: nothing becomes durable until sync() is called.
  void set_automatic(bool automatic) { automatic_ = automatic; }
  /// Makes commands durable `delay` after the first of them was appended, all in one batch.
  void set_sync_delay(Duration delay) { sync_delay_ = delay; }
  void set_snapshot_every(std::size_t commands) { snapshot_every_ = commands; }
  /// Makes everything appended so far durable and calls the callbacks.
  void sync();
  /// Simulates a power cut: drops what was not synced. Returns the callbacks without calling them.
  /// Destroy the objects that answer requests in these callbacks first. Otherwise the destroyed
  /// callbacks answer that the requests were dropped.
  std::vector<Durable> drop_unsynced();
  /// Simulates a damaged disk: drops the newest commands although they were durable. Not while the
  /// journal is loaded.
  void lose_end(std::size_t commands) {
    durable_.resize(durable_.size() - std::min(commands, durable_.size()));
  }
  /// The number of durable commands since the newest snapshot.
  std::size_t after_snapshot() const { return durable_.size() - snapshot_size_; }
  std::size_t unsynced() const { return unsynced_.size(); }
  std::size_t durable_count() const { return durable_.size(); }

  Status load(Reactor& reactor, const Apply& apply) override;
  void append(const Command& command, Durable durable) override;
  bool wants_snapshot() const override { return since_snapshot_ >= snapshot_every_; }
  void write_snapshot(std::vector<Command> commands) override;
  void stop() override;

 private:
  struct Unsynced {
    Command command;
    Durable durable;
    std::vector<Command> snapshot;  ///< replaces everything before it
    bool is_snapshot = false;
  };

  Reactor* reactor_ = nullptr;
  Lifetime lifetime_;  ///< lives from load() to stop(); posted calls check it
  bool automatic_ = true;
  Duration sync_delay_{};
  bool posted_ = false;
  std::size_t snapshot_every_ = 10000;
  std::size_t since_snapshot_ = 0;
  std::vector<Command> durable_;
  std::size_t snapshot_size_ = 0;  ///< how many commands of `durable_` are the newest snapshot
  std::deque<Unsynced> unsynced_;
};

}  // namespace stdchk::manager
