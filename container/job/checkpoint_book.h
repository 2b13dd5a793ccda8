#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "container/description/description.h"
#include "container/job/job.h"
#include "core/base/clock.h"
#include "core/base/problem.h"

namespace stdchk::container {

/// CheckpointFigures are of one checkpoint that was taken.
struct CheckpointFigures {
  SetId set = 0;
  Duration pause{};
  Duration complete{};
  std::uint64_t image_bytes = 0;
  std::map<std::string, Duration> steps;  ///< longest time until a node's answer
};

/// A CheckpointBook has the sets of a job: sets that a restart may need, and the set under way. It
/// also has the figures of checkpoints, and the callbacks of waiting requests.
///
/// Threads: the reactor's. Pure: it writes no file.
class CheckpointBook {
 public:
  using Done = std::function<void(const Outcome<void>& saved)>;

  // Sets.
  void add(SetDescription set) { sets_[set.set] = std::move(set); }
  const SetDescription& at(SetId set) const { return sets_.at(set); }
  /// Returns nullptr for an unknown set.
  const SetDescription* find(SetId set) const;
  void drop(SetId set) { sets_.erase(set); }

  // The checkpoint that is under way, and figures.
  void begin() { now_ = {}; }
  void note_step(msg::NodeStep step, Duration took);
  void note_saved(std::uint64_t bytes) { now_.image_bytes += bytes; }
  void note_stored(SetId set, BoxId box, std::uint64_t bytes);
  /// The set is complete: older sets are not needed any more.
  const CheckpointFigures& taken(const CheckpointAction& action);
  const std::vector<CheckpointFigures>& figures() const { return figures_; }

  // Wishes.
  /// A checkpoint is wanted as soon as it may begin.
  void request() { wanted_ = true; }
  bool wanted() const { return wanted_; }
  void clear_wish() { wanted_ = false; }
  /// The first set from `first` on answers `done`.
  void wait(SetId first, Done done) { waiting_.push_back({first, std::move(done)}); }
  bool has_waiting() const { return !waiting_.empty(); }
  /// Takes out, in their order, those that `set` answers.
  std::vector<Done> take_answered(SetId set);
  /// Takes out the callbacks of all requests, those of evacuations, too.
  std::vector<Done> take_all();
  /// A Move waits until it may begin: it takes the containers of `node` to other nodes.
  struct Move {
    NodeId node = 0;
    Done done;
  };
  void want_move(NodeId node, Done done) { moves_.push_back({node, std::move(done)}); }
  /// Takes out the oldest Move that `begins` accepts. Older ones are taken out, too, and answered
  /// with the problem that `begins` gave.
  std::optional<Move> take_move(const std::function<Outcome<void>(NodeId)>& begins);

 private:
  struct Waiter {
    SetId first;
    Done done;
  };

  std::map<SetId, SetDescription> sets_;
  CheckpointFigures now_;
  std::vector<CheckpointFigures> figures_;
  bool wanted_ = false;
  std::vector<Waiter> waiting_;
  std::deque<Move> moves_;
};

}  // namespace stdchk::container
