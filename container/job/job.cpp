#include "container/job/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/assert.h"

namespace stdchk::container {

using msg::NodeStep;

namespace {

/// Time beyond the lease in which a node that was cut off kills its containers.
constexpr Duration kFenceMargin = std::chrono::seconds(2);

}  // namespace

const char* name_of(NodeStep step) {
  switch (step) {
    case NodeStep::kStart:
      return "start";
    case NodeStep::kStop:
      return "stop";
    case NodeStep::kSettle:
      return "settle";
    case NodeStep::kLock:
      return "lock";
    case NodeStep::kSave:
      return "save";
    case NodeStep::kOpen:
      return "open";
    case NodeStep::kResume:
      return "resume";
    case NodeStep::kStore:
      return "store";
    case NodeStep::kDiscard:
      return "discard";
    case NodeStep::kLoad:
      return "load";
    case NodeStep::kRemove:
      return "remove";
  }
  return "commit";
}

Job::Job(const JobLimits& limits, std::uint32_t boxes, std::uint32_t nodes, std::uint32_t spares)
    : limits_(limits) {
  STDCHK_ASSERT(boxes > 0 && nodes > spares);
  for (NodeId node = 0; node < nodes; ++node) alive_.insert(node);
  const std::uint32_t used = nodes - spares;
  for (BoxId box = 0; box < boxes; ++box) placement_[box] = box % used;
}

std::map<NodeId, std::vector<BoxId>> Job::everyone() const {
  std::map<NodeId, std::vector<BoxId>> who;
  for (const auto& [box, node] : placement_) who[node].push_back(box);
  return who;
}

std::vector<Job::Stage> Job::stages(std::initializer_list<NodeStep> steps) const {
  std::vector<Stage> out;
  for (const NodeStep step : steps) out.push_back({step, everyone()});
  return out;
}

void Job::begin(Time now) {
  begun_ = true;
  run(now, Kind::kStart, stages({NodeStep::kStart}));
}

void Job::begin_from(Time now, SetId set, SetId last) {
  begun_ = true;
  newest_ = set;
  set_ = std::max(set, last);
  run(now, Kind::kRestart, stages({NodeStep::kLoad, NodeStep::kOpen, NodeStep::kResume}));
}

void Job::run(Time now, Kind kind, std::vector<Stage> stages) {
  STDCHK_ASSERT(!ended_);
  sequence_ = Sequence{.kind = kind, .stages = std::move(stages), .began = now};
  enter_stage(now);
}

void Job::enter_stage(Time now) {
  Sequence& sequence = *sequence_;
  const Stage& stage = sequence.stages[sequence.at];
  sequence.waiting.clear();
  sequence.deadline = now + limit_of(stage.step);
  if (stage.step == kCommit) {
    actions_.emplace_back(CommitAction{set_});
    return;
  }
  if (sequence.kind == Kind::kEvacuate && stage.step == NodeStep::kLoad) {
    placement_ = sequence.placement_after;
  }
  const bool may_lack = stage.step == NodeStep::kRemove || stage.step == NodeStep::kDiscard;
  for (const auto& [node, boxes] : stage.who) {
    if (!may_lack && alive_.count(node) == 0) {
      return restart(now, fmt::format("node {} is lost", node));
    }
  }
  const SetId set = sequence.kind == Kind::kRestart ? newest_ : set_;
  for (const auto& [node, boxes] : stage.who) {
    if (alive_.count(node) == 0) continue;
    sequence.waiting.insert(node);
    actions_.emplace_back(StepAction{node, stage.step, set, boxes, limit_of(stage.step)});
  }
  if (sequence.waiting.empty() && now >= sequence.not_before) next_stage(now);
}

void Job::next_stage(Time now) {
  Sequence& sequence = *sequence_;
  sequence.not_before = {};
  if (++sequence.at < sequence.stages.size()) return enter_stage(now);
  finish(now);
}

void Job::finish(Time now) {
  const Sequence done = std::move(*sequence_);
  sequence_.reset();
  switch (done.kind) {
    case Kind::kGiveUp:
      return;
    case Kind::kCheckpoint:
      return begin_store(now, done);
    case Kind::kEvacuate:
      actions_.emplace_back(CheckpointAction{set_, true, {}, now - done.began, now - done.began});
      return;
    case Kind::kStart:
    case Kind::kRestart:
      actions_.emplace_back(RunsAction{newest_, now - done.began});
      return;
    case Kind::kEnd:
      return end(status_, reason_);
  }
}

void Job::on_answer(Time now, NodeId node, NodeStep step, SetId set, const std::string& error) {
  if (ended_ || alive_.count(node) == 0) return;
  if (store_ && step == NodeStep::kStore && set == store_->set) {
    if (!error.empty()) return give_up_store(error);
    store_->waiting.erase(node);
    if (store_->waiting.empty() && !store_->committing) stored(now);
    return;
  }
  if (!sequence_ || sequence_->stages[sequence_->at].step != step) return;
  if (sequence_->waiting.erase(node) == 0) return;
  if (!error.empty()) {
    return fail(now, fmt::format("node {} could not {}: {}", node, name_of(step), error));
  }
  if (sequence_->waiting.empty() && now >= sequence_->not_before) next_stage(now);
}

void Job::begin_store(Time now, const Sequence& done) {
  store_ = Store{.set = set_,
                 .waiting = {},
                 .deadline = now + limits_.store,
                 .began = done.began,
                 .pause = now - done.began};
  for (const auto& [node, boxes] : everyone()) {
    store_->waiting.insert(node);
    actions_.emplace_back(StepAction{node, NodeStep::kStore, set_, boxes, limits_.store});
  }
}

void Job::stored(Time now) {
  store_->committing = true;
  store_->deadline = now + limits_.quiet;
  actions_.emplace_back(CommitAction{store_->set});
}

void Job::on_committed(Time now, SetId set, const std::string& error) {
  if (ended_) return;
  if (store_ && store_->committing && store_->set == set) {
    if (!error.empty()) return give_up_store(error);
    newest_ = set;
    actions_.emplace_back(CheckpointAction{set, true, {}, store_->pause, now - store_->began});
    store_.reset();
    return;
  }
  if (!sequence_ || sequence_->stages[sequence_->at].step != kCommit) return;
  if (!error.empty()) return fail(now, "the description cannot be written: " + error);
  newest_ = set;
  evacuated_.insert(sequence_->leaving);
  next_stage(now);
}

void Job::give_up_store(const std::string& why) {
  actions_.emplace_back(DropAction{store_->set});
  actions_.emplace_back(CheckpointAction{store_->set, false, why, {}, {}});
  store_.reset();
}

void Job::give_up_checkpoint(Time now, const std::string& why) {
  say("the checkpoint is cancelled: " + why);
  actions_.emplace_back(DropAction{set_});
  actions_.emplace_back(CheckpointAction{set_, false, why, {}, {}});
  run(now, Kind::kGiveUp, stages({NodeStep::kOpen, NodeStep::kResume, NodeStep::kDiscard}));
}

/// A step failed on a node that lives, or no answer came in time.
void Job::fail(Time now, const std::string& why) {
  const Sequence& sequence = *sequence_;
  const NodeStep step = sequence.stages[sequence.at].step;
  switch (sequence.kind) {
    case Kind::kStart:
      reason_ = why;
      status_ = 2;
      return run(now, Kind::kEnd, stages({NodeStep::kRemove}));
    case Kind::kCheckpoint:
      if (step == NodeStep::kOpen || step == NodeStep::kResume) return restart(now, why);
      return give_up_checkpoint(now, why);
    case Kind::kEvacuate:
      if (newest_ != set_) return give_up_checkpoint(now, why);
      return restart(now, why);
    case Kind::kGiveUp:
      if (step == NodeStep::kDiscard) return next_stage(now);
      return restart(now, why);
    case Kind::kRestart:
      return restart(now, why);
    case Kind::kEnd:
      say(why);
      return end(status_, reason_);
  }
}

void Job::on_node_lost(Time now, NodeId node, const std::string& why) {
  if (ended_ || alive_.count(node) == 0) return;
  drop_node(now, node, why);
  const bool concerns =
      std::ranges::any_of(placement_, [&](const auto& placed) { return placed.second == node; });
  if (sequence_ && sequence_->kind == Kind::kEnd) {
    sequence_->waiting.erase(node);
    if (sequence_->waiting.empty()) next_stage(now);
    return;
  }
  if (sequence_ && sequence_->waiting.count(node) > 0) {
    return restart(now, fmt::format("node {} is lost", node));
  }
  if (concerns) restart(now, fmt::format("node {} is lost", node));
}

void Job::drop_node(Time now, NodeId node, const std::string& why) {
  if (alive_.erase(node) == 0) return;
  fenced_at_ = std::max(fenced_at_, now + limits_.lease + kFenceMargin);
  say(fmt::format("node {} is lost: {}", node, why));
}

void Job::on_box_lost(Time now, BoxId box, const std::string& why) {
  if (!running()) return;
  restart(now, fmt::format("container {} has ended: {}", box, why));
}

void Job::on_program_ended(Time now, std::uint32_t status) { want_end(now, status, {}); }

void Job::want_end(Time now, std::uint32_t status, const std::string& why) {
  if (ended_ || (sequence_ && sequence_->kind == Kind::kEnd)) return;
  if (store_) give_up_store("the job ends");
  status_ = status;
  reason_ = why;
  std::vector<Stage> removal(1, Stage{NodeStep::kRemove, {}});
  for (const NodeId node : alive_) removal[0].who[node] = {};
  run(now, Kind::kEnd, std::move(removal));
}

void Job::want_checkpoint(Time now) {
  if (!running() || store_) return;
  ++set_;
  run(now, Kind::kCheckpoint,
      stages({NodeStep::kStop, NodeStep::kSettle, NodeStep::kLock, NodeStep::kSave, NodeStep::kOpen,
              NodeStep::kResume}));
}

bool Job::want_evacuation(Time now, NodeId node) {
  const auto leaving = everyone();
  const auto boxes = leaving.find(node);
  if (!running() || store_ || boxes == leaving.end()) return false;
  auto steps = stages({NodeStep::kStop, NodeStep::kSettle, NodeStep::kLock, NodeStep::kSave,
                       NodeStep::kStore, kCommit});
  steps.push_back({NodeStep::kRemove, {{node, boxes->second}}});
  auto after = placement_;
  if (!place(after, {node})) return false;
  Stage load{NodeStep::kLoad, {}};
  for (const BoxId box : boxes->second) load.who[after[box]].push_back(box);
  steps.push_back(std::move(load));
  std::map<NodeId, std::vector<BoxId>> all_after;
  for (const auto& [box, at] : after) all_after[at].push_back(box);
  for (const NodeStep step : {NodeStep::kOpen, NodeStep::kResume}) {
    steps.push_back({step, all_after});
  }
  ++set_;
  run(now, Kind::kEvacuate, std::move(steps));
  sequence_->leaving = node;
  sequence_->placement_after = std::move(after);
  return true;
}

/// Places containers of nodes that are not alive, evacuated, or in `without`. Evacuated nodes are used
/// only if no other node is left.
bool Job::place(std::map<BoxId, NodeId>& placement, std::set<NodeId> without) const {
  const std::set<NodeId> asked = without;
  without.insert(evacuated_.begin(), evacuated_.end());
  return place_on(placement, without) || place_on(placement, asked);
}

/// Places the containers of nodes that are not alive, or in `without`, on nodes with the fewest.
/// Changes nothing when it returns false.
bool Job::place_on(std::map<BoxId, NodeId>& placement, const std::set<NodeId>& without) const {
  std::map<NodeId, std::size_t> load;
  for (const NodeId node : alive_) {
    if (without.count(node) == 0) load[node] = 0;
  }
  if (load.empty()) return false;
  for (const auto& [box, node] : placement) {
    if (load.count(node) > 0) ++load[node];
  }
  for (auto& [box, node] : placement) {
    if (load.count(node) > 0) continue;
    const auto least = std::ranges::min_element(
        load, [](const auto& a, const auto& b) { return a.second < b.second; });
    node = least->first;
    ++least->second;
  }
  return true;
}

void Job::restart(Time now, const std::string& why) {
  if (store_) give_up_store(why);
  if (sequence_ && (sequence_->kind == Kind::kCheckpoint || sequence_->kind == Kind::kEvacuate) &&
      newest_ != set_) {
    actions_.emplace_back(DropAction{set_});
    actions_.emplace_back(CheckpointAction{set_, false, why, {}, {}});
  }
  const auto before = std::exchange(sequence_, std::nullopt);
  // Nodes that are lost while the old containers are removed cost no further restart.
  const bool same = before && before->kind == Kind::kRestart && before->at == 0;
  const bool goes_on = (restarts_ != limits_.restarts_max || same) && place(placement_, {});
  if (before && before->kind == Kind::kEvacuate && newest_ == set_) {
    const bool is_empty = goes_on && std::ranges::none_of(placement_, [&](const auto& placed) {
                            return placed.second == before->leaving;
                          });
    const Duration took = now - before->began;
    actions_.emplace_back(CheckpointAction{
        set_, is_empty, is_empty ? "" : "the restart found no other node for its containers", took,
        took});
  }
  if (!goes_on) {
    const bool nobody = alive_.empty();
    return want_end(
        now, 2,
        why + (nobody ? ", and no node is left"
                      : fmt::format(", and the job was restarted {} times", restarts_)));
  }
  if (!same) ++restarts_;
  say(newest_ == 0 ? fmt::format("{}; the job begins anew, because no set is complete", why)
                   : fmt::format("{}; the job goes back to set T{}", why, newest_));
  std::vector<Stage> steps(1, Stage{NodeStep::kRemove, {}});
  for (const NodeId node : alive_) steps[0].who[node] = {};
  if (newest_ == 0) {
    steps.push_back({NodeStep::kStart, everyone()});
  } else {
    for (const NodeStep step : {NodeStep::kLoad, NodeStep::kOpen, NodeStep::kResume}) {
      steps.push_back({step, everyone()});
    }
  }
  sequence_ = Sequence{.kind = Kind::kRestart, .stages = std::move(steps), .began = now};
  sequence_->not_before = fenced_at_;
  enter_stage(now);
}

void Job::end(std::uint32_t status, const std::string& why) {
  sequence_.reset();
  store_.reset();
  ended_ = true;
  actions_.emplace_back(EndAction{status, why});
}

void Job::on_time(Time now) {
  if (ended_) return;
  if (store_ && now >= store_->deadline) {
    give_up_store("the images were not in the pool in time");
  }
  if (!sequence_) return;
  Sequence& sequence = *sequence_;
  const NodeStep step = sequence.stages[sequence.at].step;
  if (sequence.waiting.empty() && step != kCommit) {
    if (now >= sequence.not_before) next_stage(now);
    return;
  }
  if (now < sequence.deadline) return;
  // In these steps a checkpoint can no longer be cancelled, so a node that hangs counts as lost.
  if (step == NodeStep::kRemove || step == NodeStep::kLoad || step == NodeStep::kOpen ||
      step == NodeStep::kResume) {
    for (const NodeId node : std::set<NodeId>(sequence.waiting)) {
      drop_node(now, node, fmt::format("it does not {} in time", name_of(step)));
    }
  }
  fail(now, fmt::format("no answer to {} in time", name_of(step)));
}

std::vector<Action> Job::take_actions() { return std::exchange(actions_, {}); }

Time Job::next_time() const {
  Time next = Time::max();
  if (ended_) return next;
  if (store_) next = std::min(next, store_->deadline);
  if (sequence_) {
    next = std::min(next, sequence_->waiting.empty() && sequence_->not_before > Time{}
                              ? sequence_->not_before
                              : sequence_->deadline);
  }
  return next;
}

Duration Job::limit_of(NodeStep step) const {
  switch (step) {
    case NodeStep::kStart:
      return limits_.start;
    case NodeStep::kSave:
      return limits_.save;
    case NodeStep::kStore:
      return limits_.store;
    case NodeStep::kLoad:
      return limits_.load;
    case NodeStep::kRemove:
      return limits_.remove;
    default:
      return limits_.quiet;
  }
}

std::string Job::phase() const {
  if (ended_) return "ended";
  if (!begun_) return "new";
  if (!sequence_) return store_ ? "running, storing" : "running";
  constexpr std::array kNames{"start", "checkpoint", "give up", "evacuate", "restart", "end"};
  return fmt::format("{}: {}", kNames[static_cast<std::size_t>(sequence_->kind)],
                     name_of(sequence_->stages[sequence_->at].step));
}

}  // namespace stdchk::container
