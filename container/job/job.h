#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"

/// The coordinator of a job in containers. container/README.md has the tables of states and steps.
namespace stdchk::container {

using NodeId = std::uint32_t;
using BoxId = std::uint32_t;
using SetId = std::uint64_t;  ///< the timestep Tj of a checkpoint; 0: none

/// In the place of a node's step: the coordinator commits the description.
inline constexpr msg::NodeStep kCommit{};

/// The name of a step, for figures and sentences.
const char* name_of(msg::NodeStep step);

/// JobLimits are the times after which the coordinator gives a step up.
struct JobLimits {
  Duration start = std::chrono::seconds(60);
  Duration quiet = std::chrono::seconds(10);  ///< of stop, settle, lock, open and resume, each
  Duration save = std::chrono::minutes(10);
  Duration store = std::chrono::minutes(30);
  Duration load = std::chrono::minutes(30);
  Duration remove = std::chrono::seconds(60);
  /// A node ends its containers when it has not heard of the coordinator for this time.
  Duration lease = std::chrono::seconds(10);
  std::uint32_t restarts_max = 3;
};

/// Asks a node to take a step. The answer goes to Job::on_answer().
struct StepAction {
  NodeId node;
  msg::NodeStep step;
  SetId set;
  std::vector<BoxId> boxes;
  Duration deadline;
};
/// Writes the description of a set, the last member. Job::on_committed() follows.
struct CommitAction {
  SetId set;
};
/// Removes the images of a set that was given up.
struct DropAction {
  SetId set;
};
/// Reports that a checkpoint was taken or given up.
struct CheckpointAction {
  SetId set;  ///< 0: the job was at no checkpoint yet
  bool taken;
  std::string why;      ///< not taken: the reason
  Duration pause{};     ///< taken: how long the job stood still
  Duration complete{};  ///< taken: from the request until the set was complete
};
/// The containers run: from the beginning (set 0), where they have no commands yet, or from a set.
struct RunsAction {
  SetId set;
  Duration after{};  ///< time since the start, or since the failure
};
struct SayAction {
  std::string text;
};
/// The job is over. No action follows.
struct EndAction {
  std::uint32_t status;
  std::string why;  ///< empty: the program has ended
};
using Action = std::variant<StepAction, CommitAction, DropAction, CheckpointAction, RunsAction,
                            SayAction, EndAction>;

/// A Job decides the next steps of a job's nodes. It is pure: events go in, actions come out.
///
/// Owns: the placement of containers, and the number of the newest complete set.
/// Threads: one.
/// Limits: each step has a deadline; on_time() must be called when next_time() has come.
/// Not: the links to the nodes, the files of the pool.
class Job {
 public:
  /// Shares out `boxes` containers evenly over `nodes` nodes. The last `spares` nodes get none.
  Job(const JobLimits& limits, std::uint32_t boxes, std::uint32_t nodes, std::uint32_t spares);

  // Events. The time never goes back.
  void begin(Time now);
  /// Begins with a restart from a set that an earlier coordinator has committed. New sets get
  /// numbers above `last`, the job's newest set, because a restart takes the set with the highest
  /// number.
  void begin_from(Time now, SetId set, SetId last);
  /// An empty `error` means that the step is done.
  void on_answer(Time now, NodeId node, msg::NodeStep step, SetId set, const std::string& error);
  void on_committed(Time now, SetId set, const std::string& error);
  void on_node_lost(Time now, NodeId node, const std::string& why);
  /// Process 1 of a container has ended without a request.
  void on_box_lost(Time now, BoxId box, const std::string& why);
  void on_program_ended(Time now, std::uint32_t status);
  /// Ignored while a checkpoint is under way. Answered by a CheckpointAction.
  void want_checkpoint(Time now);
  /// Moves the node's containers to other nodes. From then on the node gets containers only if no
  /// other node is left. Returns false when no other node is left, or a sequence of steps is under
  /// way.
  bool want_evacuation(Time now, NodeId node);
  void want_end(Time now, std::uint32_t status, const std::string& why);
  void on_time(Time now);

  std::vector<Action> take_actions();
  Time next_time() const;

  bool running() const { return !sequence_ && !ended_ && begun_; }
  bool ended() const { return ended_; }
  bool storing() const { return store_.has_value(); }
  SetId newest() const { return newest_; }
  SetId saving() const { return set_; }
  std::uint32_t restarts() const { return restarts_; }
  const std::map<BoxId, NodeId>& placement() const { return placement_; }
  const std::set<NodeId>& alive() const { return alive_; }
  std::string phase() const;

 private:
  enum class Kind : std::uint8_t { kStart, kCheckpoint, kGiveUp, kEvacuate, kRestart, kEnd };
  struct Stage {
    msg::NodeStep step = kCommit;
    std::map<NodeId, std::vector<BoxId>> who;
  };
  struct Sequence {
    Kind kind;
    std::vector<Stage> stages;
    std::size_t at = 0;
    std::set<NodeId> waiting;
    Time deadline{};
    Time not_before{};  ///< restart: when the containers of lost nodes have surely ended
    Time began{};
    /// Evacuation: the node that containers leave, and where they are from the load on.
    NodeId leaving{};
    std::map<BoxId, NodeId> placement_after;
  };
  struct Store {
    SetId set;
    std::set<NodeId> waiting;
    Time deadline;
    Time began;
    Duration pause;
    bool committing = false;
  };

  std::map<NodeId, std::vector<BoxId>> everyone() const;
  std::vector<Stage> stages(std::initializer_list<msg::NodeStep> steps) const;
  void run(Time now, Kind kind, std::vector<Stage> stages);
  void enter_stage(Time now);
  void next_stage(Time now);
  void finish(Time now);
  void fail(Time now, const std::string& why);
  void give_up_checkpoint(Time now, const std::string& why);
  void give_up_store(const std::string& why);
  void begin_store(Time now, const Sequence& done);
  void stored(Time now);
  void restart(Time now, const std::string& why);
  bool place(std::map<BoxId, NodeId>& placement, std::set<NodeId> without) const;
  bool place_on(std::map<BoxId, NodeId>& placement, const std::set<NodeId>& without) const;
  void drop_node(Time now, NodeId node, const std::string& why);
  void end(std::uint32_t status, const std::string& why);
  Duration limit_of(msg::NodeStep step) const;
  void say(std::string text) { actions_.emplace_back(SayAction{std::move(text)}); }

  const JobLimits limits_;
  std::map<BoxId, NodeId> placement_;
  std::set<NodeId> alive_;
  std::set<NodeId> evacuated_;  ///< they get containers again only if no other node is left
  std::optional<Sequence> sequence_;
  std::optional<Store> store_;
  std::vector<Action> actions_;
  SetId set_ = 0;     ///< the set of the present checkpoint, or the newest one begun
  SetId newest_ = 0;  ///< the newest complete set
  Time fenced_at_{};  ///< containers of lost nodes have ended by then
  std::uint32_t restarts_ = 0;
  std::uint32_t status_ = 0;
  std::string reason_;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace stdchk::container
