#include "container/node/node.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "core/base/log.h"

namespace stdchk::container {

using msg::NodeStep;
using msg::Tell;

namespace {

constexpr std::size_t kThreads = 8;
constexpr auto kLeaseCheck = std::chrono::milliseconds(500);
/// A settled network is better, but not necessary: TCP sends lost bytes again.
constexpr auto kSettleMax = std::chrono::milliseconds(500);
/// After this time an answer does not wait for news of the containers.
constexpr auto kNewsMax = std::chrono::milliseconds(500);
constexpr std::size_t kHostNameBytes = 256;
constexpr const char* kTell = "node.tell";
/// Limit of an answer's detail (core/messages/stdchk.capnp: Reply.detail).
constexpr std::size_t kDetailBytesMax = 3500;

rpc::Answer refuse(Code code, const char* where, std::string detail) {
  return tl::unexpected(rpc::Failure{{code, 0, where}, std::move(detail), {}});
}

/// Gives back no bytes for functions that return none.
Outcome<std::uint64_t> no_bytes(Outcome<void> done) {
  if (!done) return problem(std::move(done.error()));
  return 0;
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.front() != '.' &&
         name.find('\0') == std::string::npos;
}

/// Adds to `reply.boxes[at]` what the files of the container say.
void add_news(const Box& box, const msg::AskNode& request, msg::AskNode::Reply& reply,
              std::size_t at) {
  msg::BoxState& state = reply.boxes[at];
  state.request = box.newest_request();
  for (const auto& [command, status] : box.ended_commands()) {
    state.ended.push_back(command << 32 | status);
  }
  if (state.box != 0) return;
  // Only the launcher asks for commands, and only its output is shown.
  state.asks = box.asks();
  reply.output = box.output(false, request.output_from);
  reply.errors = box.output(true, request.errors_from);
}

Outcome<void> tell(const Box& box, const msg::TellBox& request) {
  switch (request.tell) {
    case Tell::kCommand:
      return box.give_command(request.number, request.text);
    case Tell::kAskTaken:
      return box.take_ask(request.text);
    case Tell::kAskEnded:
      return box.end_ask(request.text, request.number);
    case Tell::kGoesOn:
      return box.answer("goes-on", request.number);
    case Tell::kRestarted:
      return box.answer("restarted", request.number);
    case Tell::kNotTaken:
      return box.answer("not-taken", request.number);
  }
  return problem("the message says nothing");
}

std::string host_name() {
  char name[kHostNameBytes] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

/// A Waiting is a request that gets one answer: of the files' thread, or of a timer before that.
class Node::Waiting {
 public:
  explicit Waiting(rpc::Responder respond) : respond_(std::move(respond)) {}
  void answer(rpc::Answer with) {
    if (std::exchange(is_answered_, true)) return;
    respond_(std::move(with));
  }

 private:
  rpc::Responder respond_;
  bool is_answered_ = false;
};

/// A Visitor is a link of a coordinator.
class Node::Visitor final : public rpc::PeerHandler {
 public:
  Visitor(Node& node, std::unique_ptr<transport::Link> link)
      : node_(node), peer_(node.reactor_, std::move(link), *this) {}
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override {
    node_.serve(*this, std::move(request), deadline, std::move(respond));
  }
  void on_closed(rpc::Peer&, Error) override {
    node_.visitors_.remove_if([this](const auto& one) { return one.get() == this; });
  }
  rpc::Peer& peer() { return peer_; }

 private:
  Node& node_;
  rpc::Peer peer_;
};

Node::Node(Reactor& reactor, BoxSettings settings, std::function<void()> on_lease_end,
           std::function<void(const NetworkDescription&)> on_network)
    : reactor_(reactor),
      settings_(std::move(settings)),
      on_lease_end_(std::move(on_lease_end)),
      on_network_(std::move(on_network)),
      executor_("boxes", kThreads),
      files_("box files", 1) {
  check_lease();
}

Node::~Node() = default;

void Node::on_accept(std::unique_ptr<transport::Link> link) {
  visitors_.push_back(std::make_unique<Visitor>(*this, std::move(link)));
}

void Node::check_lease() {
  reactor_.schedule_after(kLeaseCheck, [this] { check_lease(); });
  (void)lease_is_over();
}

/// Ends the node when it is. After that the coordinator starts the containers elsewhere.
bool Node::lease_is_over() {
  if (lease_over_) return true;
  if (job_.empty() || reactor_.clock().now() - heard_ <= lease_) return false;
  log::warning("no coordinator for {} ms: the containers end",
               std::chrono::duration_cast<std::chrono::milliseconds>(lease_).count());
  lease_over_ = true;
  on_lease_end_();
  return true;
}

void Node::serve(Visitor& visitor, msg::RequestEnvelope envelope, Time deadline,
                 rpc::Responder respond) {
  const auto* const identity = visitor.peer().link().peer();
  if (identity == nullptr || identity->member.role != transport::secure::Role::kCoordinator) {
    return respond(refuse(Code::kRefused, "node.request", "Only a coordinator may ask a node."));
  }
  // A node that was stopped finds requests that came while its lease was still good.
  if (lease_is_over()) {
    return respond(refuse(Code::kRefused, "node.request", "The node's lease is over."));
  }
  heard_ = reactor_.clock().now();
  if (const auto* request = std::get_if<msg::PrepareNode>(&envelope.body)) {
    return respond(prepare(*request));
  }
  if (const auto* request = std::get_if<msg::AskNode>(&envelope.body)) {
    return tell_state(*request, std::move(respond));
  }
  if (const auto* request = std::get_if<msg::TellBox>(&envelope.body)) {
    return tell_box(*request, std::move(respond));
  }
  auto* const request = std::get_if<msg::StepNode>(&envelope.body);
  if (request == nullptr || request->job != job_ || job_.empty()) {
    return respond(refuse(Code::kRefused, "node.request", "The node is not prepared for that."));
  }
  steps_.push_back(std::make_shared<Step>());
  steps_.back()->request = std::move(*request);
  steps_.back()->deadline = deadline;
  steps_.back()->respond = std::move(respond);
  begin_step();
}

rpc::Answer Node::prepare(const msg::PrepareNode& request) {
  if (!job_.empty() && job_ != request.job) {
    return refuse(Code::kBusy, "node.prepare", "The node serves job " + job_ + ".");
  }
  if (!boxes_.empty() || busy_) {
    return refuse(Code::kBusy, "node.prepare", "The node has containers in the job's network.");
  }
  auto network = parse_network(request.network);
  if (!network) return refuse(Code::kInvalidArgument, "node.prepare", network.error().text);
  on_network_(*network);
  auto made = std::make_shared<JobNetwork>(std::move(*network));
  if (network_) {
    // A restart of the job. The reactor runs no programs now, because the coordinator is counting
    // the time until answers. The step that loads containers makes the network.
    executor_.run([old = std::exchange(network_, std::move(made))] { old->remove(); });
    return msg::Reply(msg::PrepareNode::Reply{host_name(), version_});
  }
  const auto version = settings_.criu.version();
  if (!version) return refuse(Code::kUnsupported, "node.prepare", version.error().text);
  if (auto done = made->make(); !done)
    return refuse(Code::kSystem, "node.prepare", done.error().text);
  network_ = std::move(made);
  version_ = *version;
  job_ = request.job;
  lease_ = Duration(request.lease_ns);
  // The lease begins after the programs that make the network.
  heard_ = reactor_.clock().now();
  return msg::Reply(msg::PrepareNode::Reply{host_name(), version_});
}

/// Runs `work` on the files' thread, and answers with what it returns. Not while a step runs.
void Node::use_files(std::shared_ptr<Waiting> waiting, std::function<rpc::Answer()> work) {
  ++uses_of_files_;
  files_.run([this, waiting = std::move(waiting), work = std::move(work)] {
    auto answer = std::make_shared<rpc::Answer>(work());
    while (!reactor_.post([this, waiting, answer] {
      --uses_of_files_;
      waiting->answer(std::move(*answer));
      begin_step();
    })) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

/// Answers in time, because the coordinator takes a silent node for lost. When files are slow, the
/// answer has no news of the containers.
void Node::tell_state(const msg::AskNode& request, rpc::Responder respond) {
  if (request.job != job_ || job_.empty()) {
    return respond(refuse(Code::kRefused, "node.ask", "The node does not serve that job."));
  }
  msg::AskNode::Reply reply;
  std::vector<const Box*> boxes;
  for (const auto& [number, box] : boxes_) {
    msg::BoxState state;
    state.box = number;
    state.running = true;
    // The threads of a running step own the containers.
    const auto status = busy_ ? std::nullopt : box->exit_status();
    if (status) {
      state.running = false;
      state.exit_status = *status;
    }
    reply.boxes.push_back(std::move(state));
    boxes.push_back(box.get());
  }
  if (busy_ || uses_of_files_ > 0 || boxes.empty()) return respond(msg::Reply(std::move(reply)));
  auto waiting = std::make_shared<Waiting>(std::move(respond));
  reactor_.schedule_after(
      kNewsMax, [waiting, reply]() mutable { waiting->answer(msg::Reply(std::move(reply))); });
  use_files(waiting, [request, reply, boxes = std::move(boxes)]() mutable -> rpc::Answer {
    for (std::size_t i = 0; i < boxes.size(); ++i) add_news(*boxes[i], request, reply, i);
    return msg::Reply(std::move(reply));
  });
}

void Node::tell_box(const msg::TellBox& request, rpc::Responder respond) {
  const auto found = boxes_.find(request.box);
  if (request.job != job_ || found == boxes_.end()) {
    return respond(refuse(Code::kNotFound, kTell, "The node has no such container."));
  }
  if (busy_) return respond(refuse(Code::kBusy, kTell, "A step works on the containers."));
  const bool names_ask = request.tell == Tell::kAskTaken || request.tell == Tell::kAskEnded;
  if (names_ask && !is_file_name(request.text)) {
    return respond(
        refuse(Code::kInvalidArgument, kTell, "The name of the command is no file name."));
  }
  auto waiting = std::make_shared<Waiting>(std::move(respond));
  use_files(std::move(waiting), [&box = *found->second, request]() -> rpc::Answer {
    const auto done = tell(box, request);
    if (!done) return refuse(Code::kSystem, kTell, done.error().text);
    return msg::Reply(msg::TellBox::Reply{});
  });
}

void Node::begin_step() {
  if (busy_ || uses_of_files_ > 0 || steps_.empty()) return;
  busy_ = true;
  run_step(steps_.front());
}

Box& Node::box(std::uint32_t number) {
  auto& slot = boxes_[number];
  if (!slot) slot = std::make_unique<Box>(settings_, number);
  return *slot;
}

std::string Node::path_of(std::uint32_t box, std::uint64_t set) const {
  const NetworkDescription& network = network_->description();
  return network.folder + "/" + image_name(network.application, box, set);
}

/// The work for one container, with all that it needs: the step may outlive the request.
Outcome<Node::Work> Node::work_of(const Step& step, const msg::BoxOrder& order) {
  const Duration left = step.deadline - reactor_.clock().now();
  const std::string path = path_of(order.box, step.request.set);
  switch (step.request.step) {
    case NodeStep::kStart:
    case NodeStep::kLoad: {
      auto description = parse_box(order.description);
      if (!description) return problem(std::move(description.error()));
      if (step.request.step == NodeStep::kStart) {
        return [network = network_, what = std::move(*description)](Box& box) {
          if (auto made = network->make(); !made) return no_bytes(std::move(made));
          return no_bytes(box.start(what, *network));
        };
      }
      return [network = network_, what = std::move(*description), path,
              left](Box& box) -> Outcome<std::uint64_t> {
        if (auto made = network->make(); !made) return no_bytes(std::move(made));
        return box.load(what, *network, path, left);
      };
    }
    case NodeStep::kStop:
      return [left](Box& box) { return no_bytes(box.stop(left)); };
    case NodeStep::kSettle:
      return [](Box& box) { return no_bytes(box.settle(kSettleMax)); };
    case NodeStep::kLock:
      return [](Box& box) { return no_bytes(box.lock()); };
    case NodeStep::kSave:
      return [left](Box& box) { return box.save(left); };
    case NodeStep::kOpen:
      return [](Box& box) { return no_bytes(box.open()); };
    case NodeStep::kResume:
      return [](Box& box) { return box.resume(), Outcome<std::uint64_t>(0); };
    case NodeStep::kStore:
      return [path, left](Box& box) { return box.store(path, left); };
    case NodeStep::kDiscard:
      return [](Box& box) { return box.discard(), Outcome<std::uint64_t>(0); };
    case NodeStep::kRemove:
      return [](Box& box) { return box.remove(), Outcome<std::uint64_t>(0); };
  }
  return problem("the step is not known");
}

void Node::run_step(const std::shared_ptr<Step>& step) {
  auto orders = step->request.boxes;
  const bool makes =
      step->request.step == NodeStep::kStart || step->request.step == NodeStep::kLoad;
  if (orders.empty()) {
    for (const auto& [number, box] : boxes_) orders.push_back({number, {}});
  }
  step->left = orders.size() + 1;
  for (const msg::BoxOrder& order : orders) {
    if (!makes && boxes_.count(order.box) == 0) {
      step_done(step, order.box, problem("there is no such container"), {});
      continue;
    }
    auto work = work_of(*step, order);
    if (!work) {
      step_done(step, order.box, problem(work.error()), {});
      continue;
    }
    executor_.run([this, step, number = order.box, &box = box(order.box), work = *work] {
      const auto began = std::chrono::steady_clock::now();
      auto outcome = work(box);
      const auto took = std::chrono::steady_clock::now() - began;
      while (!reactor_.post(
          [this, step, number, outcome, took] { step_done(step, number, outcome, took); })) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  // Later steps need not wait until images are in the pool.
  const bool beside = step->request.step == NodeStep::kStore;
  if (beside) {
    std::erase(steps_, step);
    busy_ = false;
  }
  step_done(step, 0, 0, {});
  if (beside) begin_step();
}

void Node::step_done(const std::shared_ptr<Step>& step, std::uint32_t box,
                     const Outcome<std::uint64_t>& outcome, Duration took) {
  --step->left;
  if (!outcome) {
    step->errors += fmt::format("{}container {}: {}", step->errors.empty() ? "" : "; ", box,
                                outcome.error().text);
  } else if (took > Duration{}) {
    step->results.push_back({box, *outcome, static_cast<std::uint64_t>(took.count())});
  }
  if (step->left > 0) return;
  if (step->request.step == NodeStep::kRemove) {
    if (step->request.boxes.empty()) boxes_.clear();
    for (const auto& order : step->request.boxes) boxes_.erase(order.box);
  }
  if (step->errors.empty()) {
    step->respond(msg::Reply(msg::StepNode::Reply{std::move(step->results)}));
  } else {
    log::warning("{}", step->errors);
    step->respond(refuse(Code::kSystem, "node.step", step->errors.substr(0, kDetailBytesMax)));
  }
  if (steps_.empty() || steps_.front() != step) return;
  steps_.pop_front();
  busy_ = false;
  begin_step();
}

void Node::end() {
  for (auto& [number, box] : boxes_) box->remove();
  boxes_.clear();
  if (network_) network_->remove();
}

}  // namespace stdchk::container
