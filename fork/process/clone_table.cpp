#include "fork/process/clone_table.h"

#include <algorithm>
#include <utility>

namespace stdchk::fork {

CloneTable::CloneTable(std::uint32_t count, std::uint32_t local) : local_(local), clones_(count) {
  for (std::uint32_t i = 0; i < count; i++) clones_[i].id = i + 1;
}

Clone* CloneTable::at(std::uint32_t id) {
  return id == 0 || id > clones_.size() ? nullptr : &clones_[id - 1];
}

const Clone* CloneTable::find(std::uint32_t id) const {
  return id == 0 || id > clones_.size() ? nullptr : &clones_[id - 1];
}

Status CloneTable::freeze() {
  if (state_ != TicketState::kReserved) return fail(Code::kBusy, "fork.clone");
  state_ = TicketState::kFreezing;
  return {};
}

Status CloneTable::source_came() {
  if (state_ != TicketState::kFreezing) return fail(Code::kBusy, "fork.source");
  state_ = TicketState::kStarting;
  for (Clone& clone : clones_) {
    if (clone.id > local_ && clone.state == CloneState::kReserved)
      clone.state = CloneState::kStarting;
  }
  settle();
  return {};
}

std::optional<std::uint32_t> CloneTable::next_to_start() {
  if (state_ != TicketState::kStarting) return std::nullopt;
  for (Clone& clone : clones_) {
    if (clone.state != CloneState::kReserved) continue;
    clone.state = CloneState::kStarting;
    return clone.id;
  }
  return std::nullopt;
}

Status CloneTable::started(std::uint32_t id) {
  Clone* clone = at(id);
  if (clone == nullptr || clone->state != CloneState::kStarting) {
    return fail(Code::kBusy, "fork.started");
  }
  clone->state = CloneState::kStarted;
  settle();
  return {};
}

Status CloneTable::running(std::uint32_t id) {
  Clone* clone = at(id);
  // The clone itself says so, perhaps before the frozen copy has said that it made the clone.
  if (clone == nullptr ||
      (clone->state != CloneState::kStarted && clone->state != CloneState::kStarting)) {
    return fail(Code::kBusy, "fork.running");
  }
  clone->state = CloneState::kRunning;
  settle();
  return {};
}

void CloneTable::source_lost(const std::string& why) {
  for (Clone& clone : clones_) {
    if (clone.state == CloneState::kReserved || clone.state == CloneState::kStarting) {
      ended(clone.id, End::kFailed, 0, why);
    }
  }
  state_ = TicketState::kCloned;
}

bool CloneTable::ended(std::uint32_t id, End end, std::int32_t status, std::string value) {
  Clone* clone = at(id);
  if (clone == nullptr || clone->state == CloneState::kEnded) return false;
  clone->state = CloneState::kEnded;
  clone->end = end;
  clone->status = status;
  clone->value = std::move(value);
  settle();
  return true;
}

bool CloneTable::all_ended() const { return count_in(CloneState::kEnded) == clones_.size(); }

std::uint32_t CloneTable::count_in(CloneState state) const {
  return static_cast<std::uint32_t>(std::count_if(
      clones_.begin(), clones_.end(), [state](const Clone& c) { return c.state == state; }));
}

void CloneTable::settle() {
  if (state_ != TicketState::kStarting) return;
  if (count_in(CloneState::kReserved) + count_in(CloneState::kStarting) == 0) {
    state_ = TicketState::kCloned;
  }
}

}  // namespace stdchk::fork
