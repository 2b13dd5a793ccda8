#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "container/box/box.h"
#include "core/base/executor.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"

namespace stdchk::container {

/// A Node is the daemon of containers on one host. It executes the requests of a job's coordinator.
///
/// Owns: the containers and their network on this host.
/// Threads: the reactor's. Steps run on the executor's threads, one step after the other; `store`
///   runs beside later steps. Files that containers share are read and written by one more thread,
///   between the steps.
/// Errors: a step that fails for any container is answered with kSystem and a sentence for each.
/// Limits: one job. After a lease without a request of the coordinator, it calls `on_lease_end`.
class Node final : public transport::AcceptHandler {
 public:
  /// Calls `on_network` with the job's network before it makes the network's first device.
  Node(Reactor& reactor, BoxSettings settings, std::function<void()> on_lease_end,
       std::function<void(const NetworkDescription&)> on_network);
  ~Node() override;

  void on_accept(std::unique_ptr<transport::Link> link) override;
  /// Ends all containers. Blocks.
  void end();

 private:
  class Visitor;
  class Waiting;
  struct Step {
    msg::StepNode request;
    Time deadline;
    rpc::Responder respond;
    std::size_t left = 0;
    std::vector<msg::StepNode::Result> results;
    std::string errors;
  };
  using Work = std::function<Outcome<std::uint64_t>(Box&)>;

  void serve(Visitor& visitor, msg::RequestEnvelope request, Time deadline, rpc::Responder respond);
  rpc::Answer prepare(const msg::PrepareNode& request);
  void tell_state(const msg::AskNode& request, rpc::Responder respond);
  void tell_box(const msg::TellBox& request, rpc::Responder respond);
  void use_files(std::shared_ptr<Waiting> waiting, std::function<rpc::Answer()> work);
  void begin_step();
  void run_step(const std::shared_ptr<Step>& step);
  Outcome<Work> work_of(const Step& step, const msg::BoxOrder& order);
  void step_done(const std::shared_ptr<Step>& step, std::uint32_t box,
                 const Outcome<std::uint64_t>& outcome, Duration took);
  Box& box(std::uint32_t number);
  std::string path_of(std::uint32_t box, std::uint64_t set) const;
  void check_lease();
  bool lease_is_over();

  Reactor& reactor_;
  const BoxSettings settings_;
  const std::function<void()> on_lease_end_;
  const std::function<void(const NetworkDescription&)> on_network_;
  ThreadExecutor executor_;
  ThreadExecutor files_;
  std::list<std::unique_ptr<Visitor>> visitors_;
  std::string job_;
  std::string version_;                  ///< of CRIU
  std::shared_ptr<JobNetwork> network_;  ///< of the job's newest restart; never null with a job
  std::map<std::uint32_t, std::unique_ptr<Box>> boxes_;
  std::deque<std::shared_ptr<Step>> steps_;  ///< the first one runs
  bool busy_ = false;
  std::size_t uses_of_files_ = 0;  ///< under way; no step begins before their end
  Duration lease_{};
  Time heard_{};
  bool lease_over_ = false;
};

}  // namespace stdchk::container
