#include "container/job/coordinator.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "container/job/node_client.h"
#include "core/base/limits.h"

namespace stdchk::container {

using msg::NodeStep;
using msg::Tell;

namespace {

namespace fs = std::filesystem;

constexpr auto kReadyMax = std::chrono::seconds(30);
constexpr auto kPrepareMax = std::chrono::seconds(20);
constexpr auto kPollInterval = std::chrono::milliseconds(100);
/// A longer gap between two polls means that this process was stopped or starved.
constexpr auto kPauseMin = std::chrono::milliseconds(500);
constexpr auto kTellMax = std::chrono::seconds(5);
/// The coordinator waits a little longer for a step than the node itself.
constexpr auto kStepMargin = std::chrono::seconds(1);

std::string created_now() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(now));
}

/// Writes a whole new file; the pool shows it when it is closed.
std::string write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? std::string() : errno_text(path);
}

}  // namespace

Coordinator::Coordinator(Reactor& reactor, transport::Endpoint& endpoint,
                         std::shared_ptr<transport::secure::Keyring> root,
                         CoordinatorSettings settings, CoordinatorEvents events)
    : reactor_(reactor),
      endpoint_(endpoint),
      keyring_(std::move(root)),
      settings_(std::move(settings)),
      events_(std::move(events)),
      job_(settings_.limits, static_cast<std::uint32_t>(settings_.boxes.size()),
           static_cast<std::uint32_t>(settings_.nodes.size()), settings_.spares) {
  if (!settings_.from) return;
  book_.add(*settings_.from);
  // Earlier output was shown by an earlier coordinator.
  records_.set_shown(settings_.from->output_bytes, settings_.from->error_bytes);
}

Coordinator::~Coordinator() {
  for (const TimerId timer : {timer_, poll_timer_, every_timer_}) reactor_.cancel(timer);
}

Outcome<void> Coordinator::start_nodes(const KeyMaker& key_file_text) {
  std::vector<transport::secure::Member> members;
  for (const NodeStart& node : settings_.nodes) {
    members.push_back(transport::secure::new_member(transport::secure::Role::kNode));
    auto process = NodeProcess::start(node.command, key_file_text(members.back()), node.log);
    if (!process) return problem(node.host + ": " + process.error().text);
    processes_.push_back(std::move(*process));
  }
  for (NodeId id = 0; id < processes_.size(); ++id) {
    auto address = processes_[id].wait_ready(kReadyMax);
    if (!address) return problem(settings_.nodes[id].host + ": " + address.error().text);
    nodes_.push_back(std::make_unique<Node>(reactor_, *address,
                                            keyring_->ticket(keyring_->self(), members[id], 1),
                                            [this, id](const std::string& why) { lost(id, why); }));
  }
  return {};
}

NetworkDescription Coordinator::network_for(NodeId node) const {
  NetworkDescription network;
  network.number = 1 + (settings_.network_number - 1 + job_.restarts()) % kNetworkNumberMax;
  network.prefix_bits = settings_.prefix_bits;
  network.underlay = settings_.nodes[node].underlay;
  network.folder = settings_.nodes[node].folder;
  network.application = settings_.job;
  network.lazy = settings_.lazy;
  std::set<std::string> peers;
  for (const NodeStart& other : settings_.nodes) {
    if (other.underlay != network.underlay) peers.insert(other.underlay);
  }
  network.peers.assign(peers.begin(), peers.end());
  return network;
}

void Coordinator::begin() {
  preparing_ = nodes_.size();
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (const Status done = nodes_[id]->connect(endpoint_, kPrepareMax); !done) {
      prepared(id, problem(done.error()));
      continue;
    }
    prepare(id, [this, id](const Outcome<void>& done) { prepared(id, done); });
  }
}

/// Gives the node to the job, with the network of the job's present restart.
void Coordinator::prepare(NodeId node, std::function<void(const Outcome<void>& prepared)> done) {
  nodes_[node]->network_of_restart = job_.restarts();
  msg::PrepareNode request{settings_.job, text_of(network_for(node)),
                           static_cast<std::uint64_t>(settings_.limits.lease.count())};
  nodes_[node]->call(std::move(request), kPrepareMax,
                     [done = std::move(done)](const rpc::Answer& answer) {
                       done(answer ? Outcome<void>() : problem(answer.error().text()));
                     });
}

void Coordinator::prepared(NodeId node, const Outcome<void>& done) {
  if (!done) {
    job_.want_end(reactor_.clock().now(), 2,
                  fmt::format("{} cannot run containers: {}", host_of(node), done.error().text));
    return act();
  }
  if (--preparing_ > 0) return;
  const Time now = reactor_.clock().now();
  settings_.from ? job_.begin_from(now, settings_.from->set, settings_.last) : job_.begin(now);
  schedule_checkpoint();
  poll_nodes();
  act();
}

void Coordinator::lost(NodeId node, const std::string& why) {
  job_.on_node_lost(reactor_.clock().now(), node, why);
  act();
}

// ---- actions ------------------------------------------------------------------------------------

void Coordinator::act() {
  if (acting_) return;
  acting_ = true;
  for (auto actions = job_.take_actions(); !actions.empty(); actions = job_.take_actions()) {
    for (const Action& action : actions) {
      std::visit([this](const auto& one) { act_on(one); }, action);
    }
  }
  acting_ = false;
  schedule();
}

void Coordinator::schedule() {
  reactor_.cancel(timer_);
  timer_ = {};
  const Time next = job_.next_time();
  if (next == Time::max()) return;
  timer_ = reactor_.schedule_at(next, [this] {
    job_.on_time(reactor_.clock().now());
    act();
  });
}

void Coordinator::act_on(const StepAction& action) {
  msg::StepNode request{settings_.job, action.step, action.set, {}};
  const bool makes = action.step == NodeStep::kStart || action.step == NodeStep::kLoad;
  const SetDescription* const set = book_.find(action.set);
  for (const BoxId box : action.boxes) {
    const auto& boxes = set == nullptr ? settings_.boxes : set->boxes;
    request.boxes.push_back({box, makes ? text_of(boxes.at(box)) : std::string()});
  }
  if (makes && nodes_[action.node]->network_of_restart != job_.restarts()) {
    // A link keeps the order of its requests, so the network is there before the containers.
    prepare(action.node, [this, action](const Outcome<void>& done) {
      if (done) return;
      job_.on_answer(reactor_.clock().now(), action.node, action.step, action.set,
                     fmt::format("{}: {}", host_of(action.node), done.error().text));
      act();
    });
  }
  const Time began = reactor_.clock().now();
  nodes_[action.node]->call(std::move(request), action.deadline + kStepMargin,
                            [this, action, began](const rpc::Answer& answer) {
                              stepped(action.node, action, answer, began);
                            });
}

void Coordinator::stepped(NodeId node, const StepAction& action, const rpc::Answer& answer,
                          Time began) {
  const Time now = reactor_.clock().now();
  book_.note_step(action.step, now - began);
  const bool lost_link = !answer && answer.error().error.code == Code::kPeerLost;
  if (lost_link) return;  // lost() is called, too
  if (answer) {
    const auto* reply = std::get_if<msg::StepNode::Reply>(&*answer);
    for (const auto& result : reply == nullptr ? msg::StepNode::Reply().results : reply->results) {
      if (action.step == NodeStep::kSave) book_.note_saved(result.bytes);
      if (action.step == NodeStep::kStore) {
        book_.note_stored(action.set, result.box, result.bytes);
      }
    }
  }
  job_.on_answer(
      now, node, action.step, action.set,
      answer ? std::string() : fmt::format("{}: {}", host_of(node), answer.error().text()));
  act();
}

void Coordinator::act_on(const CommitAction& action) {
  const std::string path = settings_.folder + "/" + description_name(settings_.job, action.set);
  const std::string text = text_of(book_.at(action.set));
  files_.run([this, path, text, set = action.set] {
    const std::string error = write_file(path, text);
    (void)reactor_.post([this, set, error] {
      job_.on_committed(reactor_.clock().now(), set, error);
      act();
    });
  });
}

void Coordinator::act_on(const DropAction& action) {
  std::vector<std::string> paths{settings_.folder + "/" +
                                 description_name(settings_.job, action.set)};
  for (const auto& [box, description] : settings_.boxes) {
    paths.push_back(settings_.folder + "/" + image_name(settings_.job, box, action.set));
  }
  book_.drop(action.set);
  files_.run([paths] {
    for (const std::string& path : paths) ::unlink(path.c_str());
  });
}

void Coordinator::act_on(const CheckpointAction& action) {
  if (action.taken) events_.taken(book_.taken(action));
  answer_waiting(action);
  schedule_checkpoint();
}

/// Answers the requests that came before the set began. A later request waits for a later set.
void Coordinator::answer_waiting(const CheckpointAction& action) {
  const Outcome<void> saved = action.taken ? Outcome<void>() : problem(action.why);
  for (const Done& done : book_.take_answered(action.set)) done(saved);
  const Tell what = action.taken ? Tell::kGoesOn : Tell::kNotTaken;
  for (const auto& [box, request] : records_.answer_requests(action.set)) {
    send_word(box, what, request, {});
  }
  if (book_.has_waiting() || records_.has_requests()) book_.request();
}

void Coordinator::act_on(const RunsAction& action) {
  if (action.set == 0) {
    records_.begin();
    std::string words;
    for (const auto& word : settings_.program) words += word + '\0';
    send_word(0, Tell::kCommand, 0, std::move(words));
    return;
  }
  records_.begin_from(book_.at(action.set));
  events_.say(
      fmt::format("runs again from set T{}, {} ms after", action.set,
                  std::chrono::duration_cast<std::chrono::milliseconds>(action.after).count()));
}

void Coordinator::act_on(const SayAction& action) { events_.say(action.text); }

void Coordinator::act_on(const EndAction& action) {
  for (const TimerId timer : {timer_, poll_timer_, every_timer_}) reactor_.cancel(timer);
  for (const Done& done : book_.take_all()) done(problem("the job has ended"));
  status_ = action.status;
  reason_ = action.why;
  reactor_.stop();
}

// ---- checkpoints --------------------------------------------------------------------------------

void Coordinator::schedule_checkpoint() {
  reactor_.cancel(every_timer_);
  every_timer_ = {};
  if (!settings_.interval) return;
  const auto wait = settings_.interval(figures().empty() ? nullptr : &figures().back());
  if (!wait) return;
  every_timer_ = reactor_.schedule_after(*wait, [this] {
    book_.request();
    begin_checkpoint();
  });
}

void Coordinator::want_checkpoint(Done done) {
  if (job_.ended()) return done(problem("the job has ended"));
  book_.wait(next_set(), std::move(done));
  book_.request();
  begin_checkpoint();
}

void Coordinator::begin_checkpoint() {
  // A checkpoint goes first: the end of the job may wait for it.
  if (!book_.wanted()) return begin_evacuation();
  // The set describes the commands of each container at the stop. So no command is under way now.
  if (tells_ > 0 || !job_.running() || job_.storing()) return;
  book_.clear_wish();
  book_.begin();
  job_.want_checkpoint(reactor_.clock().now());
  book_.add(describe_set());
  act();
}

void Coordinator::want_evacuation(const std::string& host, Done done) {
  if (job_.ended()) return done(problem("the job has ended"));
  NodeId node = 0;
  while (node < settings_.nodes.size() && settings_.nodes[node].host != host) ++node;
  if (node == settings_.nodes.size()) return done(problem("the job has no node " + host));
  book_.want_move(node, std::move(done));
  begin_checkpoint();
}

void Coordinator::begin_evacuation() {
  if (tells_ > 0 || !job_.running() || job_.storing()) return;
  auto move = book_.take_move([this](NodeId node) -> Outcome<void> {
    if (job_.want_evacuation(reactor_.clock().now(), node)) return {};
    return problem(
        fmt::format("nothing of the job runs on {}, or no other node is left", host_of(node)));
  });
  if (!move) return;
  book_.begin();
  book_.add(describe_set());
  book_.wait(job_.saving(), std::move(move->done));
  act();
}

void Coordinator::want_end(std::uint32_t status, const std::string& why) {
  job_.want_end(reactor_.clock().now(), status, why);
  act();
}

SetDescription Coordinator::describe_set() const {
  SetDescription set;
  set.job = settings_.job;
  set.set = job_.saving();
  set.created = created_now();
  set.program = settings_.program;
  set.boxes = settings_.boxes;
  records_.save_in(set);
  return set;
}

// ---- what containers say ------------------------------------------------------------------------

/// A pause of this process may mean that the whole host paused, nodes included. So the time of a pause
/// does not count as silence of nodes.
void Coordinator::excuse_nodes_after_pause() {
  const Time now = reactor_.clock().now();
  const Time before = std::exchange(polled_, now);
  if (before == Time{} || now - before < kPauseMin) return;
  events_.say(fmt::format(
      "this process did not run for {} ms",
      std::chrono::duration_cast<std::chrono::milliseconds>(now - before - kPollInterval).count()));
  for (const auto& node : nodes_) node->excused = node->asking;
}

void Coordinator::poll_nodes() {
  excuse_nodes_after_pause();
  poll_timer_ = reactor_.schedule_after(kPollInterval, [this] { poll_nodes(); });
  for (const NodeId id : std::set<NodeId>(job_.alive())) {
    Node& node = *nodes_[id];
    if (node.asking) continue;
    node.asking = true;
    msg::AskNode request{settings_.job, records_.output_bytes(), records_.error_bytes()};
    nodes_[id]->call(std::move(request), settings_.silent_max,
                     [this, id](const rpc::Answer& answer) {
                       nodes_[id]->asking = false;
                       const bool excused = std::exchange(nodes_[id]->excused, false);
                       if (!answer) {
                         if (answer.error().error.code == Code::kDeadline && !excused) {
                           lost(id, "it does not answer");
                         }
                         return;
                       }
                       if (const auto* reply = std::get_if<msg::AskNode::Reply>(&*answer)) {
                         state_of(id, *reply);
                       }
                     });
  }
}

void Coordinator::state_of(NodeId node, const msg::AskNode::Reply& reply) {
  if (!job_.running() || job_.alive().count(node) == 0) return;
  const bool has_first = job_.placement().at(0) == node;
  if (has_first) {
    if (!reply.output.empty()) events_.output(false, reply.output);
    if (!reply.errors.empty()) events_.output(true, reply.errors);
    records_.set_shown(records_.output_bytes() + reply.output.size(),
                       records_.error_bytes() + reply.errors.size());
  }
  // The program's end waits until all of its output was shown.
  const bool all_shown = reply.output.empty() && reply.errors.empty();
  for (const msg::BoxState& state : reply.boxes) {
    const auto placed = job_.placement().find(state.box);
    if (placed == job_.placement().end() || placed->second != node) continue;
    if (!state.running) {
      job_.on_box_lost(reactor_.clock().now(), state.box,
                       fmt::format("its process 1 has ended with {}", state.exit_status));
      return act();
    }
    for (const std::uint64_t ended : state.ended) {
      if (state.box != 0 || ended >> 32 != 0 || !all_shown) continue;
      job_.on_program_ended(reactor_.clock().now(), static_cast<std::uint32_t>(ended));
      return act();
    }
    take_state(state);
    if (!job_.running()) return;
  }
}

void Coordinator::take_state(const msg::BoxState& state) {
  for (const std::uint64_t ended : state.ended) {
    for (const std::string& name : records_.end_command(state.box, ended >> 32)) {
      send_word(0, Tell::kAskEnded, ended & UINT32_MAX, name);
    }
  }
  take_asks(state);
  if (records_.takes_restart(state.box, state.request)) {
    // The program had asked before the set was saved, and learns now that it was restarted.
    send_word(state.box, Tell::kRestarted, state.request, {});
    return;
  }
  if (records_.add_request(state.box, state.request, next_set())) book_.request();
  begin_checkpoint();
}

void Coordinator::take_asks(const msg::BoxState& state) {
  for (const std::string& ask : state.asks) {
    const std::size_t name_end = ask.find(' ');
    const std::size_t host_end = ask.find(' ', name_end + 1);
    if (name_end == std::string::npos) continue;
    const std::string name = ask.substr(0, name_end);
    if (state.box != 0 || records_.knows_ask(name)) continue;
    const std::string host =
        host_end == std::string::npos ? "" : ask.substr(name_end + 1, host_end - name_end - 1);
    const auto box = box_of_host(host);
    if (!box) {
      events_.say(
          fmt::format("a command for the host {} was refused: no container has that name", host));
      records_.add_ask(name, 0, 0);
      send_word(0, Tell::kAskEnded, 255, name);
      continue;
    }
    const std::uint64_t number = records_.next_command(*box);
    records_.add_ask(name, *box, number);
    const std::string command = ask.substr(host_end + 1);
    std::string words;
    for (const std::string& word : {std::string("/bin/sh"), std::string("-c"), command}) {
      words += word + '\0';
    }
    send_word(*box, Tell::kCommand, number, std::move(words), [this, name](bool given) {
      if (given) send_word(0, Tell::kAskTaken, 0, name);
    });
  }
}

std::optional<BoxId> Coordinator::box_of_host(const std::string& host) const {
  for (const auto& [number, box] : settings_.boxes) {
    if (box.address == host || box.host_name == host) return number;
  }
  return std::nullopt;
}

void Coordinator::send_word(BoxId box, Tell what, std::uint64_t number, std::string text,
                            std::function<void(bool)> done) {
  const NodeId node = job_.placement().at(box);
  ++tells_;
  nodes_[node]->call(msg::TellBox{settings_.job, box, what, number, std::move(text)}, kTellMax,
                     [this, box, done = std::move(done)](const rpc::Answer& answer) {
                       --tells_;
                       if (!answer && job_.running()) {
                         job_.on_box_lost(reactor_.clock().now(), box, answer.error().text());
                         return act();
                       }
                       if (done) done(answer.has_value());
                       begin_checkpoint();
                     });
}

}  // namespace stdchk::container
