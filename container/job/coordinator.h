#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "container/description/description.h"
#include "container/job/box_records.h"
#include "container/job/checkpoint_book.h"
#include "container/job/job.h"
#include "container/job/node_process.h"
#include "core/base/executor.h"
#include "transport/rpc.h"

namespace stdchk::container {

/// A NodeStart says how a node's daemon is started, and where it is.
struct NodeStart {
  std::string host;                  ///< for people
  std::string underlay;              ///< address between hosts; empty: all nodes are on this host
  std::string folder;                ///< of the job's sets, as that host sees the pool
  std::vector<std::string> command;  ///< the daemon reads its key from standard input
  std::string log;
};

struct CoordinatorSettings {
  std::string job;
  std::vector<std::string> program;
  std::map<BoxId, BoxDescription> boxes;
  std::vector<NodeStart> nodes;
  std::uint32_t spares = 0;
  JobLimits limits;
  std::string folder;  ///< of the job's sets, as this host sees the pool
  /// The number of the job's network before its first restart. Each restart takes the next number,
  /// so that containers of a lost node, which may still run, cannot reach the new ones.
  std::uint32_t network_number = 1;
  std::uint32_t prefix_bits = 16;
  std::optional<SetDescription> from;  ///< the set to begin with
  SetId last = 0;                      ///< of `from`: the newest set of the job in the folder
  bool lazy = false;                   ///< a restart loads memory while the job runs
  /// A node that does not answer for this time is lost.
  Duration silent_max = std::chrono::seconds(5);
  /// The time until the next checkpoint, from the newest one's figures; null: none was taken yet.
  /// Nothing: no checkpoint without a request.
  std::function<std::optional<Duration>(const CheckpointFigures* newest)> interval;
};

/// CoordinatorEvents are the functions by which a coordinator reports.
struct CoordinatorEvents {
  std::function<void(bool errors, const std::string& text)> output;
  std::function<void(const std::string& text)> say;
  std::function<void(const CheckpointFigures&)> taken;
};

/// A Coordinator runs a job. It starts the nodes' daemons, carries out the actions of a Job, and
/// passes commands of agents to other containers.
///
/// Owns: links to the nodes, and their processes.
/// Threads: the reactor's. Files of the pool are written by a thread of the executor.
class Coordinator {
 public:
  using KeyMaker = std::function<std::string(const transport::secure::Member&)>;

  Coordinator(Reactor& reactor, transport::Endpoint& endpoint,
              std::shared_ptr<transport::secure::Keyring> root, CoordinatorSettings settings,
              CoordinatorEvents events);
  ~Coordinator();

  /// Starts the nodes; blocks until all are ready.
  Outcome<void> start_nodes(const KeyMaker& key_file_text);
  /// Connects to the nodes, then begins the job.
  void begin();

  using Done = CheckpointBook::Done;
  /// Saves the job as soon as it runs and no other set is under way.
  void want_checkpoint(Done done);
  /// Moves the containers of that host as soon as the job runs and no set is under way.
  void want_evacuation(const std::string& host, Done done);
  void want_end(std::uint32_t status, const std::string& why);

  const Job& job() const { return job_; }
  const std::vector<CheckpointFigures>& figures() const { return book_.figures(); }
  const std::string& host_of(NodeId node) const { return settings_.nodes.at(node).host; }
  std::optional<std::uint32_t> status() const { return status_; }
  const std::string& reason() const { return reason_; }

 private:
  class Node;

  void act();
  void act_on(const StepAction& action);
  void act_on(const CommitAction& action);
  void act_on(const DropAction& action);
  void act_on(const CheckpointAction& action);
  void act_on(const RunsAction& action);
  void act_on(const SayAction& action);
  void act_on(const EndAction& action);
  void schedule();
  void excuse_nodes_after_pause();
  void poll_nodes();
  void prepared(NodeId node, const Outcome<void>& done);
  void lost(NodeId node, const std::string& why);
  void stepped(NodeId node, const StepAction& action, const rpc::Answer& answer, Time began);
  void state_of(NodeId node, const msg::AskNode::Reply& reply);
  void take_state(const msg::BoxState& state);
  void take_asks(const msg::BoxState& state);
  void send_word(BoxId box, msg::Tell what, std::uint64_t number, std::string text,
                 std::function<void(bool)> done = {});
  SetId next_set() const { return job_.saving() + 1; }
  void answer_waiting(const CheckpointAction& action);
  void begin_checkpoint();
  void begin_evacuation();
  void schedule_checkpoint();
  NetworkDescription network_for(NodeId node) const;
  void prepare(NodeId node, std::function<void(const Outcome<void>& prepared)> done);
  SetDescription describe_set() const;
  std::optional<BoxId> box_of_host(const std::string& host) const;

  Reactor& reactor_;
  transport::Endpoint& endpoint_;
  const std::shared_ptr<transport::secure::Keyring> keyring_;
  const CoordinatorSettings settings_;
  const CoordinatorEvents events_;
  Job job_;
  std::vector<NodeProcess> processes_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::size_t preparing_ = 0;
  TimerId timer_, poll_timer_, every_timer_;
  Time polled_{};  ///< when the nodes were asked last; zero: never
  BoxRecords records_;
  CheckpointBook book_;
  std::size_t tells_ = 0;  ///< under way; no checkpoint begins before they are answered
  std::optional<std::uint32_t> status_;
  std::string reason_;
  bool acting_ = false;
  ThreadExecutor files_{"set files", 1};
};

}  // namespace stdchk::container
