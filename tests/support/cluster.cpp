#include "tests/support/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "benefactor/file_drainer.h"
#include "core/assert.h"
#include "core/messages/codec.h"

namespace stdchk::sim {

namespace {

/// Rounds of all nodes at one moment of virtual time; more means that something spins.
constexpr int kRoundsMax = 200000;

transport::fault::MessageKind kind_of(ByteSpan message) {
  using transport::fault::MessageKind;
  const auto envelope = msg::decode(message);
  if (!envelope.has_value()) return MessageKind::kOther;
  if (std::holds_alternative<msg::RequestEnvelope>(*envelope)) return MessageKind::kRequest;
  return std::holds_alternative<msg::ReplyEnvelope>(*envelope) ? MessageKind::kAnswer
                                                               : MessageKind::kOther;
}

}  // namespace

Node::Node(std::string node_name, transport::mem::Fabric& fabric, const NodeClock& own_clock,
           std::uint64_t seed, transport::fault::Counts& ended)
    : name(std::move(node_name)),
      clock(own_clock),
      reactor(clock),
      endpoint(fabric.make_endpoint(name, clock), clock, seed),
      ended_(ended) {
  endpoint.set_kind_of(kind_of);
  reactor.add(endpoint);
}

Node::~Node() {
  ended_ += endpoint.counts();
  reactor.remove(endpoint);
}

StandbyNode::StandbyNode(transport::mem::Fabric& fabric, const NodeClock& clock,
                         const msg::Secret& secret, std::string manager, Duration silence,
                         transport::fault::Counts& ended)
    : node("standby", fabric, clock, 1, ended),
      to_manager(fabric.make_endpoint("standby.out", node.clock), node.clock, 2),
      secret_(secret) {
  node.reactor.add(to_manager);
  rebuilder_ = std::make_unique<manager::Rebuilder>(
      node.reactor, journal_, secret_, [this](const auto& found) {
        STDCHK_ASSERT(found.has_value());
        node.reactor.schedule_after(Duration::zero(), [this] { take_over(); });
      });
  STDCHK_ASSERT(rebuilder_->start_as_standby().has_value());
  STDCHK_ASSERT(node.endpoint.listen(*this).has_value());
  manager::Standby::Config config;
  config.manager = std::move(manager);
  config.address = node.endpoint.address();
  config.secret = secret_;
  config.silence = silence;
  config.on_followed = [this] { follows = true; };
  standby_ = std::make_unique<manager::Standby>(node.reactor, to_manager, std::move(config));
  standby_->watch(*rebuilder_);
}

StandbyNode::~StandbyNode() {
  standby_.reset();
  rebuilder_.reset();
  service_.reset();
  node.reactor.remove(to_manager);
}

void StandbyNode::on_accept(std::unique_ptr<transport::Link> link) {
  if (service_ != nullptr) return service_->on_accept(std::move(link));
  rebuilder_->on_accept(std::move(link));
}

void StandbyNode::take_over() {
  manager::Config config;
  config.secret = secret_;
  service_ = std::make_unique<manager::Service>(node.reactor, journal_, config);
  STDCHK_ASSERT(service_->start().has_value());
  standby_->tell(service_->state().epoch());
  rebuilder_.reset();
}

Cluster::Cluster(Options options) : options_(std::move(options)), prng_(options_.seed) {
  journal_.set_sync_delay(options_.sync_delay);
  journal_.set_snapshot_every(options_.snapshot_every);
}

Cluster::~Cluster() {
  kill_manager();
  standby_.reset();
  while (!benefactors_.empty()) kill_benefactor(0);
}

Node& Cluster::add_node(const std::string& name) {
  others_.push_back(make_node(name, Role::kClient));
  return *others_.back();
}

void Cluster::remove_node(Node& node) {
  std::erase_if(others_, [&](const auto& each) { return each.get() == &node; });
}

void Cluster::start_manager() {
  STDCHK_ASSERT(manager_ == nullptr);
  manager_node_ = make_node("manager", Role::kManager);
  manager::Config config;
  config.secret = secret_;
  config.pool = options_.pool;
  config.scrub_rate_bytes_per_s = options_.scrub_rate_bytes_per_s;
  config.gc_period = options_.gc_period;
  config.standby = known_standby_;
  config.remember_standby = [this](const std::string& address) {
    known_standby_ = address;
    return true;
  };
  config.on_superseded = [this](Epoch epoch) { superseded_ = epoch; };
  manager_ = std::make_unique<manager::Service>(manager_node_->reactor, journal_, config);
  STDCHK_ASSERT(manager_->start().has_value());
  STDCHK_ASSERT(manager_node_->endpoint.listen(*manager_).has_value());
}

void Cluster::kill_manager() {
  const auto callbacks = journal_.drop_unsynced();
  ended_.commands += callbacks.size();
  manager_.reset();
  manager_node_.reset();
}

void Cluster::start_standby(Duration silence) {
  STDCHK_ASSERT(standby_ == nullptr);
  standby_ = std::make_unique<StandbyNode>(fabric_, make_clock(), secret_, manager_address(),
                                           silence, ended_.transport);
}

bool Cluster::rebuild_manager() {
  kill_manager();
  journal_ = manager::MemoryJournal{};
  journal_.set_sync_delay(options_.sync_delay);
  journal_.set_snapshot_every(options_.snapshot_every);
  manager_node_ = make_node("manager", Role::kManager);
  std::optional<bool> found;
  {
    manager::Rebuilder rebuilder(manager_node_->reactor, journal_, secret_,
                                 [&](const auto& got) { found = got.has_value(); });
    STDCHK_ASSERT(rebuilder.start().has_value());
    STDCHK_ASSERT(manager_node_->endpoint.listen(rebuilder).has_value());
    run_until([&] { return found.has_value(); }, limits::kOperationDeadline * 3);
  }
  manager_node_.reset();
  start_manager();
  return found.value_or(false);
}

void Cluster::add_benefactor() {
  const std::uint64_t life = ++lives_;
  Benefactor made;
  made.node = make_node(fmt::format("benefactor{}", life), Role::kBenefactor);
  benefactor::ArenaOptions arena;
  arena.bytes = options_.arena_bytes;
  arena.check_machine = false;
  arena.prefault = false;
  auto created = benefactor::Arena::create(arena, made.node->clock);
  STDCHK_ASSERT(created.has_value());
  made.arena = std::move(*created);
  benefactor::Config config;
  config.manager_address = options_.managers;
  config.secret = secret_;
  config.life = {.high = prng_.next(), .low = life};
  config.host_token = options_.hosts == 1 ? "host" : fmt::format("host{}", life % options_.hosts);
  config.host_name = made.node->name;
  config.pid = static_cast<std::int64_t>(1000 + life);
  made.jobs = std::make_unique<DelayedExecutor>(made.node->reactor, prng_.next());
  made.jobs->set_delays(job_usual_, job_longest_, job_rare_);
  config.log_bytes = options_.log_bytes;
  config.executor = made.jobs.get();
  config.pause = [](Duration) {};
  config.make_drainer = [this, bytes = made.arena->bytes(), &clock = made.node->clock,
                         seed = prng_.next()](const std::string& directory, std::uint64_t rate) {
    return std::make_unique<FaultDrainer>(
        std::make_unique<benefactor::FileDrainer>(bytes, directory, rate, clock, stop_), storage_,
        ended_.storage, seed);
  };
  made.service = std::make_unique<benefactor::Service>(
      made.node->reactor, config, *made.arena, made.node->endpoint,
      std::vector<transport::Endpoint*>{&made.node->endpoint});
  STDCHK_ASSERT(made.service->start().has_value());
  benefactors_.push_back(std::move(made));
}

void Cluster::kill_benefactor(std::size_t index) {
  Benefactor& dead = benefactors_[index];
  dead.jobs->clear();
  dead.service.reset();
  ended_.slow_jobs += dead.jobs->slow();
  dead.jobs.reset();
  dead.node.reset();
  dead.arena.reset();
  benefactors_.erase(benefactors_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Cluster::set_job_faults(Duration usual, Duration longest, std::uint64_t rare,
                             std::uint32_t storage_fail_ppm) {
  job_usual_ = usual;
  job_longest_ = longest;
  job_rare_ = rare;
  storage_.fail_ppm = storage_fail_ppm;
  for (const Benefactor& each : benefactors_) each.jobs->set_delays(usual, longest, rare);
}

Faults Cluster::faults() {
  Faults all = ended_;
  for (const Node* node : nodes()) all.transport += node->endpoint.counts();
  for (const Benefactor& each : benefactors_) all.slow_jobs += each.jobs->slow();
  return all;
}

void Cluster::set_plan(Role role, const transport::fault::Plan& plan) {
  plans_[role] = plan;
  if (role == Role::kManager && manager_node_ != nullptr) manager_node_->endpoint.plan() = plan;
  for (const Benefactor& each : benefactors_) {
    if (role == Role::kBenefactor) each.node->endpoint.plan() = plan;
  }
  for (const auto& each : others_) {
    if (role == Role::kClient) each->endpoint.plan() = plan;
  }
}

NodeClock Cluster::make_clock() {
  const auto most = static_cast<std::int64_t>(options_.drift_ppm_max);
  const auto drift = static_cast<std::int64_t>(prng_.below(2 * options_.drift_ppm_max + 1)) - most;
  const Duration start(static_cast<std::int64_t>(
      prng_.below(static_cast<std::uint64_t>(options_.clock_offset_max.count()) + 1)));
  return {clock_, drift, start};
}

std::unique_ptr<Node> Cluster::make_node(const std::string& name, Role role) {
  auto node = std::make_unique<Node>(name, fabric_, make_clock(), prng_.next(), ended_.transport);
  node->endpoint.plan() = plans_[role];
  return node;
}

std::vector<Node*> Cluster::nodes() {
  std::vector<Node*> all;
  if (manager_node_ != nullptr) all.push_back(manager_node_.get());
  if (standby_ != nullptr) all.push_back(&standby_->node);
  for (const auto& each : benefactors_) all.push_back(each.node.get());
  for (const auto& each : others_) all.push_back(each.get());
  return all;
}

void Cluster::turn(Time until) {
  const auto all = nodes();
  bool any = true;
  for (int round = 0; any; ++round) {
    if (round > kRoundsMax) {
      livelock_ = true;
      break;
    }
    any = false;
    for (Node* node : all) {
      if (!node->stopped) any |= node->reactor.run_once(Duration::zero());
    }
  }
  Time next = until;
  for (Node* node : all) {
    if (node->stopped) continue;
    next = std::min(next, node->clock.true_time(node->reactor.next_timer()));
    const Duration sleep = node->endpoint.sleep_max();
    if (sleep != Duration::max()) {
      next = std::min(next, node->clock.true_time(node->clock.now() + sleep));
    }
  }
  // An event that is due, and does nothing when it is run, must not stop the time.
  clock_.advance_to(std::max(next, std::min(until, clock_.now() + Duration(1000))));
}

void Cluster::run_for(Duration time) {
  const Time end = clock_.now() + time;
  while (clock_.now() < end && !livelock_) turn(end);
}

bool Cluster::run_until(const std::function<bool()>& done, Duration time) {
  const Time end = clock_.now() + time;
  while (!done()) {
    if (clock_.now() >= end || livelock_) return false;
    turn(end);
  }
  return true;
}

}  // namespace stdchk::sim
