#include "manager/journal/memory_journal.h"

#include <utility>

namespace stdchk::manager {

Status MemoryJournal::load(Reactor& reactor, const Apply& apply) {
  reactor_ = &reactor;
  lifetime_.renew();
  posted_ = false;
  unsynced_.clear();
  for (const Command& command : durable_) STDCHK_TRY(apply(command));
  return {};
}

void MemoryJournal::append(const Command& command, Durable durable) {
  ++since_snapshot_;
  unsynced_.push_back({command, std::move(durable), {}, false});
  if (!automatic_ || posted_) return;
  const auto sync_later = [this, alive = lifetime_.watch()] {
    if (!alive.expired()) sync();
  };
  if (sync_delay_ > Duration::zero()) {
    reactor_->schedule_after(sync_delay_, sync_later);
    posted_ = true;
  } else {
    // If the queue of posts is full, the next append tries again.
    posted_ = reactor_->post(sync_later).has_value();
  }
}

std::vector<Journal::Durable> MemoryJournal::drop_unsynced() {
  std::vector<Durable> callbacks;
  callbacks.reserve(unsynced_.size());
  for (Unsynced& each : unsynced_) callbacks.push_back(std::move(each.durable));
  unsynced_.clear();
  return callbacks;
}

void MemoryJournal::sync() {
  posted_ = false;
  std::deque<Unsynced> synced;
  synced.swap(unsynced_);
  for (Unsynced& one : synced) {
    if (one.is_snapshot) {
      durable_ = std::move(one.snapshot);
      snapshot_size_ = durable_.size();
    } else {
      durable_.push_back(std::move(one.command));
    }
  }
  const Lifetime::Watch alive = lifetime_.watch();
  for (Unsynced& one : synced) {
    if (one.durable && !alive.expired()) one.durable({});
  }
}

void MemoryJournal::write_snapshot(std::vector<Command> commands) {
  since_snapshot_ = 0;
  unsynced_.push_back({{}, {}, std::move(commands), true});
}

void MemoryJournal::stop() {
  lifetime_.end();
  if (automatic_) sync();
  unsynced_.clear();
}

}  // namespace stdchk::manager
