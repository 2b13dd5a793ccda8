#include "tests/support/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "benefactor/drain/file_drainer.h"
#include "core/base/assert.h"
#include "core/messages/codec.h"

namespace stdchk::sim {

namespace {

/// The most rounds of all nodes at one moment of virtual time; beyond it some code spins.
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

// ---- managers -----------------------------------------------------------------------------------

ManagerNode::ManagerNode(std::unique_ptr<Node> node, ManagerDisk& disk, manager::Config config)
    : node_(std::move(node)), disk_(disk), config_(std::move(config)) {
  config_.standby = disk_.standby;
  config_.remember_standby = [this](const std::string& address) {
    disk_.standby = address;
    return true;
  };
  config_.on_superseded = [this](Epoch epoch) {
    superseded_ = epoch;
    node_->stopped = true;
  };
  config_.on_damaged = [this](const std::string&) { node_->stopped = damaged_ = true; };
}

ManagerNode::~ManagerNode() {
  standby_.reset();
  rebuilder_.reset();
  service_.reset();
}

bool ManagerNode::follows() const {
  return standby_ != nullptr && service_ == nullptr && standby_->follows();
}

void ManagerNode::serve() {
  start_service();
  listen();
}

void ManagerNode::rebuild() {
  rebuilder_ = std::make_unique<manager::Rebuilder>(
      node_->reactor, disk_.journal, config_.membership,
      [this](const auto& found) { rebuilt(found.has_value()); });
  STDCHK_ASSERT(rebuilder_->start().has_value());
  listen();
}

void ManagerNode::stand_by(std::string manager, Duration silence) {
  rebuilder_ = std::make_unique<manager::Rebuilder>(
      node_->reactor, disk_.journal, config_.membership,
      [this](const auto& found) { rebuilt(found.has_value()); });
  STDCHK_ASSERT(rebuilder_->start_as_standby().has_value());
  listen();
  manager::Standby::Config config;
  config.manager = std::move(manager);
  config.address = node_->endpoint.address();
  config.silence = silence;
  standby_ = std::make_unique<manager::Standby>(node_->reactor, node_->endpoint, std::move(config));
  standby_->watch(*rebuilder_);
}

void ManagerNode::listen() { STDCHK_ASSERT(node_->endpoint.listen(*this).has_value()); }

void ManagerNode::on_accept(std::unique_ptr<transport::Link> link) {
  if (service_ != nullptr) return service_->on_accept(std::move(link));
  rebuilder_->on_accept(std::move(link));
}

/// Deferred: the rebuilder's call has not returned yet.
void ManagerNode::rebuilt(bool found) {
  failed_ = !found;
  if (!found) return;
  node_->reactor.schedule_after(Duration::zero(), [this] {
    start_service();
    if (standby_ != nullptr) standby_->announce(service_->state().epoch());
    rebuilder_.reset();
  });
}

void ManagerNode::start_service() {
  service_ = std::make_unique<manager::Service>(node_->reactor, disk_.journal, config_);
  STDCHK_ASSERT(service_->start().has_value());
}

Cluster::ManagerPlace* Cluster::manager_place() {
  ManagerPlace* latest = nullptr;
  const auto epoch = [](ManagerPlace& place) { return place.process->service()->state().epoch(); };
  for (ManagerPlace& each : places_) {
    const bool serves = each.process != nullptr && each.process->service() != nullptr;
    if (serves && (latest == nullptr || epoch(each) > epoch(*latest))) latest = &each;
  }
  return latest;
}

Cluster::ManagerPlace& Cluster::other_place() {
  return manager_place() == &places_[0] ? places_[1] : places_[0];
}

manager::Service* Cluster::manager() {
  ManagerPlace* const place = manager_place();
  return place == nullptr ? nullptr : place->process->service();
}

Node& Cluster::manager_node() {
  STDCHK_ASSERT(manager_place() != nullptr);
  return manager_place()->process->node();
}

manager::MemoryJournal& Cluster::journal() {
  STDCHK_ASSERT(manager_place() != nullptr);
  return manager_place()->disk.journal;
}

ManagerNode& Cluster::start_process(ManagerPlace& place) {
  STDCHK_ASSERT(place.process == nullptr);
  manager::Config config;
  config.membership = manager::Membership::trusting_all();
  config.pool = options_.pool;
  config.policy = options_.policy;
  config.scrub_rate_bytes_per_s = options_.scrub_rate_bytes_per_s;
  config.gc_period = options_.gc_period;
  if (options_.import_drained) {
    config.import_drained = [this](const std::string&, const auto& emit) {
      return options_.import_drained(emit);
    };
  }
  place.process = std::make_unique<ManagerNode>(make_node(place.name, Role::kManager), place.disk,
                                                std::move(config));
  return *place.process;
}

/// Callbacks of lost commands must never run; they are destroyed together with their owner.
void Cluster::end_process(ManagerPlace& place) {
  if (place.process == nullptr) return;
  if (on_end_) on_end_(place.process->node());
  const auto callbacks = place.disk.journal.drop_unsynced();
  ended_.commands += callbacks.size();
  ended_.take_overs += place.process->took_over() ? 1 : 0;
  ended_.superseded += place.process->superseded() ? 1 : 0;
  place.process.reset();
}

std::string Cluster::host_token(std::uint64_t number) const {
  return options_.hosts == 1 ? "host" : fmt::format("host{}", number % options_.hosts);
}

void Cluster::wipe(ManagerDisk& disk) {
  disk = {};
  disk.journal.set_sync_delay(options_.sync_delay);
  disk.journal.set_snapshot_every(options_.snapshot_every);
}

void Cluster::start_manager() { start_process(places_[0]).serve(); }

void Cluster::kill_manager(bool keep_disk) {
  ManagerPlace& place = *manager_place();
  end_process(place);
  if (!keep_disk) wipe(place.disk);
}

void Cluster::restart_manager() {
  ManagerPlace& place = *manager_place();
  end_process(place);
  start_process(place).serve();
}

void Cluster::restart_manager_without(std::size_t commands) {
  ManagerPlace& place = *manager_place();
  end_process(place);
  place.disk.journal.lose_end(commands);
  start_process(place).serve();
}

bool Cluster::rebuild_manager() {
  ManagerPlace& place = *manager_place();
  end_process(place);
  wipe(place.disk);
  ManagerNode& process = start_process(place);
  process.rebuild();
  run_until([&] { return process.service() != nullptr || process.failed(); },
            limits::kOperationDeadline * 3);
  if (process.service() != nullptr) return true;
  end_process(place);
  wipe(place.disk);
  start_process(place).serve();
  return false;
}

void Cluster::start_standby(Duration silence) {
  ManagerPlace& place = other_place();
  STDCHK_ASSERT(place.process == nullptr);
  wipe(place.disk);
  start_process(place).stand_by(manager_node().endpoint.address(), silence);
}

ManagerNode* Cluster::standby() {
  for (const ManagerPlace& each : places_) {
    if (each.process != nullptr && each.process->service() == nullptr) return each.process.get();
  }
  return nullptr;
}

bool Cluster::can_start_old_manager() {
  ManagerPlace& place = other_place();
  return place.process == nullptr && place.disk.journal.durable_count() > 0;
}

void Cluster::start_old_manager() { start_process(other_place()).serve(); }

/// The client number's upper bits are the epoch.
bool Cluster::is_behind(ClientId client) {
  return manager() != nullptr && client.value >> 40 < manager()->state().epoch().value;
}

// ---- all processes ------------------------------------------------------------------------------

Cluster::Cluster(Options options) : options_(std::move(options)), prng_(options_.seed) {
  places_[0].name = "manager";
  places_[1].name = "standby";
  for (ManagerPlace& each : places_) wipe(each.disk);
}

Cluster::~Cluster() {
  on_end_ = {};
  for (ManagerPlace& each : places_) end_process(each);
  while (!benefactors_.empty()) kill_benefactor(0);
}

Node& Cluster::add_node(const std::string& name) {
  others_.push_back(make_node(name, Role::kClient));
  return *others_.back();
}

void Cluster::remove_node(Node& node) {
  if (on_end_) on_end_(node);
  std::erase_if(others_, [&](const auto& each) { return each.get() == &node; });
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
  made.watch = std::make_unique<WriteWatch>(made.arena->bytes());
  made.checked = std::make_unique<std::unordered_map<std::uint64_t, CheckedExtent>>();
  benefactor::Config config;
  config.manager_address = options_.managers;
  config.trusts_unproven_links = true;
  config.life = {.high = prng_.next(), .low = life};
  config.host_token = host_token(life);
  config.host_name = made.node->name;
  config.pid = static_cast<std::int64_t>(1000 + life);
  made.jobs = std::make_unique<DelayedExecutor>(made.node->reactor, prng_.next());
  made.jobs->set_delays(job_usual_, job_longest_, job_rare_);
  config.log_bytes = options_.log_bytes;
  config.executor = made.jobs.get();
  config.pause = [](Duration) {};
  config.make_drainer = [this, bytes = made.arena->bytes(), &clock = made.node->clock, life,
                         seed = prng_.next()](
                            const std::string& directory,
                            std::uint64_t rate) -> std::unique_ptr<benefactor::Drainer> {
    if (options_.make_drainer) return options_.make_drainer(bytes, clock, life);
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
  if (on_end_) on_end_(*dead.node);
  dead.jobs->clear();
  dead.service.reset();
  ended_.slow_jobs += dead.jobs->slow();
  dead.jobs.reset();
  dead.node.reset();
  dead.watch.reset();
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
  for (const ManagerPlace& each : places_) {
    all.take_overs += each.process != nullptr && each.process->took_over() ? 1 : 0;
  }
  return all;
}

void Cluster::set_plan(Role role, const transport::fault::Plan& plan) {
  plans_[role] = plan;
  for (const ManagerPlace& each : places_) {
    if (role == Role::kManager && each.process != nullptr) {
      each.process->node().endpoint.plan() = plan;
    }
  }
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
  for (const ManagerPlace& each : places_) {
    if (each.process != nullptr) all.push_back(&each.process->node());
  }
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
  for (ManagerPlace& each : places_) {
    if (each.process != nullptr && each.process->superseded()) end_process(each);
  }
  Time next = until;
  for (Node* node : nodes()) {
    if (node->stopped) continue;
    next = std::min(next, node->clock.true_time(node->reactor.next_timer()));
    const Duration sleep = node->endpoint.sleep_max();
    if (sleep != Duration::max()) {
      next = std::min(next, node->clock.true_time(node->clock.now() + sleep));
    }
  }
  // A due event without effect must not stop the clock.
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
