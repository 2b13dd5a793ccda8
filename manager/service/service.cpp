#include "manager/service/service.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "manager/drain/drain_checks.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/sets.h"
#include "manager/recovery/log_keepers.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/parity_planner.h"
#include "manager/replication/scrubber.h"
#include "manager/space/compactor.h"
#include "manager/space/evictor.h"
#include "manager/space/garbage_collector.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kTick = 200ms;
/// Shorter than a client's patience: requests fail at once before the first
/// waiting client gives up.
constexpr Duration kStuckAfter = limits::kManagerDeadline - limits::kLease;
/// The time that a client needs to find a new manager by itself. Its heartbeat finds the old
/// manager gone, and it tries again within a second.
constexpr Duration kResumeGrace = 3s;
/// Longer than the back-off of a benefactor that reconnects.
constexpr Duration kRollCall = 2s;
/// The roll call plus the time for a snapshot. It must end before clients give up
/// (kConnectDeadline).
constexpr Duration kKeepersGrace = kRollCall + 500ms;
static_assert(kKeepersGrace < limits::kConnectDeadline);

}  // namespace

void Call::answer(rpc::Answer answer) const {
  if (!shared_->respond) return;
  const Counted& counted = shared_->counted;
  counted.counts->count(counted.kind, counted.clock->now() - counted.began);
  if (!answer) counted.counts->count_error(counted.kind, answer.error().error.code);
  if (const auto replies = replies_.lock()) replies->finish(call_id_, answer);
  shared_->respond(std::move(answer));
  shared_->respond = {};
}

void Call::fail(const Error& error, std::string detail) const {
  rpc::Failure failure{error, std::move(detail), {}};
  if (retry_class(error.code) == Retry::kBackOff) failure.retry_after = kTick;
  answer(tl::unexpected<rpc::Failure>(std::move(failure)));
}

Service::Service(Reactor& reactor, Journal& journal, Config config)
    : reactor_(reactor), journal_(journal), config_(std::move(config)), domains_(config_.topology) {
  if (config_.pool.chunk_bytes == 0) config_.pool.chunk_bytes = limits::kChunkBytesDefault;
  if (config_.pool.stripe_width == 0) config_.pool.stripe_width = limits::kStripeWidthDefault;
  drain_ = std::make_unique<DrainPlanner>(*this);
  drain_checks_ = std::make_unique<DrainChecks>(*this);
  evictor_ = std::make_unique<Evictor>(*this);
  compactor_ = std::make_unique<Compactor>(*this);
  sets_ = std::make_unique<SetKeeper>(*this);
  copies_ = std::make_unique<CopyPlanner>(*this);
  parity_ = std::make_unique<ParityPlanner>(*this);
  scrubber_ = std::make_unique<Scrubber>(*this);
  garbage_ = std::make_unique<GarbageCollector>(*this);
  checks_ = std::make_unique<ExtentChecks>(*this);
  logs_ = std::make_unique<LogKeepers>(*this);
}

Service::~Service() { stop(); }

void Service::stop() {
  if (!alive_) return;
  alive_.reset();
  reactor_.cancel(ticker_);
  // Closes clients' links first. Closing a benefactor's link drops calls; a client that waits for
  // such a call must not get the answer that it was dropped.
  std::erase_if(connections_, [](const auto& each) { return !each.second->benefactor; });
  connections_.clear();
  ended_.clear();
  if (started_) journal_.stop();
}

Status Service::start() {
  STDCHK_TRY(journal_.load(reactor_, [this](const Command& command) -> Status {
    const auto outcome = state_.apply(command);
    if (!outcome) return fail(outcome.error());
    return {};
  }));
  started_ = true;
  const Epoch next{state_.epoch().value + 1};
  // A rebuilt journal is not compared with what peers know of the lost one.
  const bool compares = same_block(next, state_.epoch());
  if (!state_.mirror_queue().empty()) mirror_newest_ = state_.mirror_queue().rbegin()->first;
  state_.take_freed();
  state_.take_thinned();
  for (const auto& [id, record] : state_.benefactors()) {
    space_.add(id, record.arena_bytes, false);
    BenefactorStatus& status = benefactors_[id];
    status.info.id = id;
    status.info.host_name = record.host_name;
    status.info.arena_bytes = record.arena_bytes;
    status.info.state = msg::BenefactorState::kSilent;
    status.last_heard = now();
    if (compares) awaited_.insert(id);
  }
  if (!state_.benefactors().empty()) {
    resume_until_ = now() + kResumeGrace;
    keepers_until_ = now() + kKeepersGrace;
    if (compares) roll_call_until_ = now() + kRollCall;
  }
  Status occupied;
  state_.chunks().for_each([&](ChunkIndex index) {
    for (const Extent& copy : state_.chunks().get(index).copies) {
      if (!space_.occupy(copy, extent_bytes(state_.chunks().length(index)))) {
        occupied = fail(Code::kCorrupt, "manager.journal");
      }
    }
  });
  STDCHK_TRY(occupied);
  // The epoch comes last. If a crash interrupts the take-over of the drain directory, the next
  // start repeats it with the same numbers.
  STDCHK_TRY(drain_->start(state_.epoch().value == 0));
  execute(BeginEpoch{next}, [this](const Result<Outcome>& outcome) {
    if (!outcome) return;
    epoch_durable_ = true;
    auto waiting = std::move(at_epoch_);
    for (const auto& call : waiting) call();
  });
  ticked_ = now();
  ticker_ = reactor_.schedule_after(kTick, [this] { tick(); });
  log::info("epoch {} with {} files and {} chunks", state_.epoch().value, state_.file_count() - 1,
            state_.chunks().chunk_count());
  return {};
}

void Service::on_accept(std::unique_ptr<transport::Link> link) {
  if (!config_.membership.admits(*link)) {
    return log::warning("a link was closed: nobody has proven itself at its other end");
  }
  const std::uint64_t number = ++accepted_;
  connections_.emplace(number, std::make_unique<Connection>(*this, number, std::move(link)));
}

void Service::tick() {
  excuse_own_pause();
  if (calls_roll() && now() >= roll_call_until_) end_roll_call();
  check_leases();
  run_fences();
  end_grace();
  checks_->run();
  watchers_.forget_old(now());
  if (replaced_files_.expire(now())) settle_freed();
  sets_->run();  // before the drain, which takes its order from the sets
  drain_->run();
  compactor_->run();
  copies_->run();
  parity_->run();
  garbage_->run();
  scrubber_->run();
  logs_->run();
  let_clients_in();
  retry_waiting();
  retry_commits();
  retry_maps();
  look_at_totals();
  look_at_durable();
  if (journal_.wants_snapshot()) take_snapshot();
  ticker_ = reactor_.schedule_after(kTick, [this] { tick(); });
}

/// While this process was stopped or starved, it could receive nothing. That time counts neither as
/// silence of peers nor as part of the grace periods.
void Service::excuse_own_pause() {
  const Time before = std::exchange(ticked_, now());
  const Duration pause = now() - before - kTick;
  if (pause < limits::kHeartbeatInterval) return;
  log::warning("this manager did not run for {} ms", pause / 1ms);
  const auto excuse = [&](auto& peer) {
    peer.last_heard = std::min(peer.last_heard + pause, now());
  };
  for (auto& [id, client] : clients_) excuse(client);
  for (auto& [id, status] : benefactors_) excuse(status);
  for (Time* const until : {&resume_until_, &keepers_until_, &roll_call_until_}) {
    if (*until > before) *until += pause;
  }
}

/// Counts ticks, not time: a pause of this process does not count.
void Service::look_at_durable() {
  const bool waits = durable_ < appended_ && durable_ == std::exchange(durable_before_, durable_);
  stuck_ticks_ = waits ? stuck_ticks_ + 1 : 0;
}

/// Returns true when new requests would wait in vain for durability, as earlier ones do. The disk
/// does not answer, or benefactors that the standby relies on do not. Calls in one directory queue
/// in the kernel, where no deadline ends them. Therefore calls fail at once instead of waiting for
/// their deadlines in turn.
bool Service::is_stuck() const { return stuck_ticks_ * kTick >= kStuckAfter; }

bool Service::waits_for_keepers() const {
  return now() < keepers_until_ && logs_->count() == 0 && logs_->may_begin();
}

void Service::let_clients_in() {
  if (at_keepers_.empty() || waits_for_keepers()) return;
  // From now on these clients may report what they have stored.
  if (resume_until_ != Time{}) resume_until_ = now() + kResumeGrace;
  const auto waiting = std::exchange(at_keepers_, {});
  for (const auto& call : waiting) call();
}

void Service::take_snapshot() {
  std::vector<Command> commands;
  state_.snapshot([&](Command command) { commands.push_back(std::move(command)); });
  journal_.write_snapshot(std::move(commands));
}

void Service::execute(Command command, std::function<void(const Result<Outcome>&)> done) {
  if (journal_failed_) {
    done(fail(Code::kReadOnly, "manager.journal"));
    return;
  }
  const auto outcome = state_.apply(command);
  if (!outcome) {
    done(outcome);
    return;
  }
  const std::uint64_t sequence = ++appended_;
  const auto& mirror = state_.mirror_queue();
  if (!mirror.empty() && mirror.rbegin()->first > mirror_newest_) {
    mirror_newest_ = mirror.rbegin()->first;
    mirror_appended_[mirror_newest_] = sequence;
  }
  settle_freed();
  logs_->append(sequence, command);
  journal_.append(command, [this, alive = std::weak_ptr<int>(alive_), sequence, outcome = *outcome,
                            done = std::move(done)](const Status& status) {
    if (alive.expired()) return;
    if (!status) {
      on_durable(sequence, status);
      return done(fail(status.error()));
    }
    logs_->when_kept(sequence, [this, sequence, outcome, done] {
      on_durable(sequence, {});
      done(outcome);
    });
  });
}

void Service::on_durable(std::uint64_t sequence, const Status& status) {
  if (!status) {
    if (journal_failed_) return;
    journal_failed_ = true;
    if (config_.on_journal_failure) config_.on_journal_failure(status.error());
    return;
  }
  durable_ = sequence;
  settle_freed();
  while (!at_durable_.empty() && at_durable_.front().first <= durable_) {
    const auto call = std::move(at_durable_.front().second);
    at_durable_.pop_front();
    call();
  }
  if (!waiting_.empty()) retry_waiting();
}

/// Calls `call` when everything applied until now is durable. Never calls
/// it when the journal fails.
void Service::when_durable(std::function<void()> call) {
  if (durable_ == appended_) return call();
  at_durable_.emplace_back(appended_, std::move(call));
}

bool Service::mirror_is_durable(std::uint64_t change) {
  // Changes of one command have consecutive numbers; only the last number was noted.
  const auto noted = mirror_appended_.lower_bound(change);
  if (noted == mirror_appended_.end()) return true;
  if (noted->second > durable_) return false;
  mirror_appended_.erase(mirror_appended_.begin(), std::next(noted));
  return true;
}

/// Takes the extents that the state has freed, and frees the space of those
/// whose commands are durable.
void Service::settle_freed() {
  auto freed = state_.take_freed();
  if (!freed.empty()) to_free_.emplace_back(appended_, std::move(freed));
  while (!to_free_.empty() && to_free_.front().first <= durable_) {
    for (const FreedExtent& one : to_free_.front().second) {
      copies_->forget(one.extent);
      space_.give(one.extent.benefactor, {one.extent.offset, one.bytes});
    }
    to_free_.pop_front();
  }
}

void Service::unpin(FileId file, Version version) {
  state_.unpin(file, version);
  settle_freed();
}

void Service::hold(ChunkIndex chunk) {
  ++held_[chunk];
  state_.hold(chunk);
}

void Service::release(ChunkIndex chunk) {
  if (--held_[chunk] == 0) held_.erase(chunk);
  state_.release(chunk);
  settle_freed();
}

bool Service::live(const Extent& extent) const {
  return !is_gone(extent.benefactor) && !copies_->is_wrong(extent);
}

bool Service::live(ChunkIndex chunk) const {
  const auto copies = state_.chunks().get(chunk).copies;
  return std::any_of(copies.begin(), copies.end(), [&](const Extent& copy) { return live(copy); });
}

bool Service::is_gone(BenefactorId benefactor) const {
  const auto found = benefactors_.find(benefactor);
  return found == benefactors_.end() || found->second.info.state == msg::BenefactorState::kGone;
}

bool Service::at_hand(const Extent& extent) const {
  const auto found = benefactors_.find(extent.benefactor);
  return live(extent) && found->second.peer != nullptr &&
         found->second.info.state == msg::BenefactorState::kAlive;
}

bool Service::at_hand(const std::vector<Extent>& copies) const {
  return std::any_of(copies.begin(), copies.end(),
                     [&](const Extent& copy) { return at_hand(copy); });
}

bool Service::can_be_made(ChunkIndex chunk) const {
  const Stripe* const stripe = state_.stripes().of(chunk);
  if (stripe == nullptr) return false;
  const auto there = std::count_if(stripe->members.begin(), stripe->members.end(),
                                   [&](ChunkIndex member) { return live(member); });
  return there >= static_cast<std::ptrdiff_t>(stripe->data);
}

std::size_t Service::writers_beside(const SessionRecord& session) const {
  return writers_ - (session.grants.empty() ? 0 : 1);
}

rpc::Peer* Service::peer_of(BenefactorId benefactor) {
  const auto found = benefactors_.find(benefactor);
  return found == benefactors_.end() ? nullptr : found->second.peer;
}

std::optional<BenefactorId> Service::some_benefactor() {
  for (std::size_t i = 0; i < benefactors_.size(); ++i) {
    auto at = benefactors_.upper_bound(BenefactorId{last_benefactor_});
    if (at == benefactors_.end()) at = benefactors_.begin();
    last_benefactor_ = at->first.value;
    if (at->second.peer != nullptr) return at->first;
  }
  return std::nullopt;
}

void Service::drain_first(FileId file) { drain_->prefer(file); }

Policy Service::policy(const File& file) const {
  Policy out = state_.policy(file);
  out.inherit(config_.policy);
  return out;
}

Attributes Service::attributes(const File& file, const VersionData& version) const {
  Attributes out = state_.attributes(file, version);
  if (out.drain == DrainState::kPending) {
    out.drain = has_drain() ? drain_->state_of(file.id) : DrainState::kNone;
  }
  return out;
}

}  // namespace stdchk::manager
