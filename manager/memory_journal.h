#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "manager/journal.h"

namespace stdchk::manager {

/// A MemoryJournal keeps commands in memory, for tests and the simulator: it outlives a Service,
/// and can forget what was not synced, as a power cut does.
class MemoryJournal final : public Journal {
 public:
  /// False: nothing becomes durable before sync() is called.
  void set_automatic(bool automatic) { automatic_ = automatic; }
  /// What is appended becomes durable that much later, with all that came in the meantime.
  void set_sync_delay(Duration delay) { sync_delay_ = delay; }
  void set_snapshot_every(std::size_t commands) { snapshot_every_ = commands; }
  /// Makes everything appended so far durable and calls back.
  void sync();
  /// A power cut: what was not synced is gone. Its callbacks are not made; who answers requests in
  /// them must be gone before they are, or it would say that they were dropped.
  std::vector<Durable> drop_unsynced();
  /// A damaged disk: the newest commands are gone, though they were durable. Not while it is
  /// loaded.
  void lose_end(std::size_t commands) {
    durable_.resize(durable_.size() - std::min(commands, durable_.size()));
  }
  /// Durable ones since the newest snapshot, which is one piece.
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
  std::shared_ptr<int> alive_;  ///< of one load() to stop(): posted calls check it
  bool automatic_ = true;
  Duration sync_delay_{};
  bool posted_ = false;
  std::size_t snapshot_every_ = 10000;
  std::size_t since_snapshot_ = 0;
  std::vector<Command> durable_;
  std::size_t snapshot_size_ = 0;  ///< so many of them are of the newest snapshot
  std::deque<Unsynced> unsynced_;
};

}  // namespace stdchk::manager
