#include "container/job/checkpoint_book.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace stdchk::container {

const SetDescription* CheckpointBook::find(SetId set) const {
  const auto found = sets_.find(set);
  return found == sets_.end() ? nullptr : &found->second;
}

void CheckpointBook::note_step(msg::NodeStep step, Duration took) {
  Duration& longest = now_.steps[name_of(step)];
  longest = std::max(longest, took);
}

void CheckpointBook::note_stored(SetId set, BoxId box, std::uint64_t bytes) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) found->second.image_bytes[box] = bytes;
}

const CheckpointFigures& CheckpointBook::taken(const CheckpointAction& action) {
  now_.set = action.set;
  now_.pause = action.pause;
  now_.complete = action.complete;
  figures_.push_back(now_);
  std::erase_if(sets_, [&](const auto& set) { return set.first < action.set; });
  return figures_.back();
}

std::vector<CheckpointBook::Done> CheckpointBook::take_answered(SetId set) {
  std::vector<Done> answered;
  for (Waiter& waiter : waiting_) {
    if (waiter.first <= set) answered.push_back(std::move(waiter.done));
  }
  std::erase_if(waiting_, [&](const Waiter& waiter) { return waiter.first <= set; });
  return answered;
}

std::vector<CheckpointBook::Done> CheckpointBook::take_all() {
  auto all = take_answered(std::numeric_limits<SetId>::max());
  for (Move& move : moves_) all.push_back(std::move(move.done));
  moves_.clear();
  return all;
}

std::optional<CheckpointBook::Move> CheckpointBook::take_move(
    const std::function<Outcome<void>(NodeId)>& begins) {
  std::optional<Move> taken;
  std::vector<std::pair<Done, Outcome<void>>> refused;
  while (!taken && !moves_.empty()) {
    Move oldest = std::move(moves_.front());
    moves_.pop_front();
    auto begun = begins(oldest.node);
    if (begun) {
      taken = std::move(oldest);
    } else {
      refused.emplace_back(std::move(oldest.done), std::move(begun));
    }
  }
  // A callback may want another move.
  for (const auto& [done, why] : refused) done(why);
  return taken;
}

}  // namespace stdchk::container
