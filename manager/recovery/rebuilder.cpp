#include "manager/recovery/rebuilder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/journal/metadata_log.h"
#include "manager/state/state.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// Time from the first benefactor with a log to the choice of a log. It is longer than any
/// benefactor's back-off. Together with the reading it is shorter than a registration waits.
constexpr Duration kGather = 4s;
constexpr Duration kGiveUp = 60s;
constexpr Duration kComeBack = 500ms;

/// Returns the first epoch of the block after that of `newest`.
Epoch next_block(Epoch newest) { return {(newest.value / kEpochBlock + 1) * kEpochBlock}; }

tl::unexpected<rpc::Failure> retry_later() {
  return tl::unexpected<rpc::Failure>(rpc::Failure{Error{Code::kBusy, 0, "manager.rebuild"},
                                                   "The manager is being rebuilt.", kComeBack});
}

}  // namespace

/// A Visitor is a link with its registration.
class Rebuilder::Visitor final : public rpc::PeerHandler {
 public:
  Visitor(Rebuilder& owner, std::uint64_t number, std::unique_ptr<transport::Link> link)
      : number_(number), owner_(owner), peer_(owner.reactor_, std::move(link), *this) {}

  void on_request(rpc::Peer&, msg::RequestEnvelope envelope, Time,
                  rpc::Responder respond) override {
    const Membership& membership = owner_.membership_;
    const auto member = Membership::member_at(peer_.link());
    if (auto* client = std::get_if<msg::RegisterClient>(&envelope.body);
        client != nullptr && may_ask(msg::Route::kClientToManager)) {
      membership.examine(*client, member);
      owner_.newest_epoch_ = std::max(owner_.newest_epoch_, client->newest_epoch);
    }
    auto* wanted = std::get_if<msg::RegisterBenefactor>(&envelope.body);
    const bool admitted = !owner_.standby_ || owner_.quorum_;
    if (wanted == nullptr || !may_ask(msg::Route::kBenefactorToManager) ||
        !membership.is_only_owner_of_life(*wanted, member) || !admitted) {
      return respond(retry_later());
    }
    if (!membership.examine(*wanted, member)) {
      log::warning("a benefactor on {} does not prove what it says of earlier epochs",
                   wanted->host_name);
    }
    registration = std::move(*wanted);
    held = std::move(respond);
    since = owner_.reactor_.clock().now();
    owner_.arrived(*this);
  }
  void on_closed(rpc::Peer&, Error) override { owner_.left(*this); }

  void send_away() {
    if (held) held(retry_later());
    held = {};
    registration.reset();
    asked = promised = false;
  }

  rpc::Peer& peer() { return peer_; }
  std::uint64_t number() const { return number_; }
  bool may_ask(msg::Route route) const { return owner_.membership_.may_ask(peer_.link(), route); }
  bool stores_log() const { return registration && registration->log_sequence > 0; }
  bool has_log() const { return stores_log() && !bad; }
  /// Orders logs by how much they contain.
  auto rank() const { return std::pair(registration->log_epoch, registration->log_sequence); }

  std::optional<msg::RegisterBenefactor> registration;
  rpc::Responder held;  ///< answers the registration when the rebuild is done
  Time since{};         ///< time of the registration
  bool bad = false;     ///< its log is damaged
  bool asked = false;   ///< asked for a promise
  bool promised = false;

 private:
  const std::uint64_t number_;
  Rebuilder& owner_;
  rpc::Peer peer_;
};

Rebuilder::Rebuilder(Reactor& reactor, Journal& journal, Membership membership, Done done)
    : reactor_(reactor),
      journal_(journal),
      membership_(std::move(membership)),
      done_(std::move(done)) {}

Rebuilder::~Rebuilder() {
  lifetime_.end();
  reactor_.cancel(gather_timer_);
  reactor_.cancel(give_up_timer_);
  for (auto& [number, visitor] : visitors_) {
    if (visitor->held) visitor->held(retry_later());
  }
  visitors_.clear();
}

Status Rebuilder::start() {
  STDCHK_TRY(load());
  give_up_timer_ = reactor_.schedule_after(kGiveUp, [this] { give_up(); });
  return {};
}

Status Rebuilder::start_as_standby() {
  standby_ = true;
  return load();
}

Status Rebuilder::load() {
  bool empty = true;
  STDCHK_TRY(journal_.load(reactor_, [&](const Command&) -> Status {
    empty = false;
    return {};
  }));
  if (!empty) {
    journal_.stop();
    return fail(Code::kExists, "manager.rebuild");
  }
  return {};
}

// ---- standby ----------------------------------------------------------------------------------

void Rebuilder::admit(Quorum quorum) {
  const Time now = reactor_.clock().now();
  if (!quorum_) {
    quorum_ = std::move(quorum);
    log::warning(
        "the manager is silent; takes over when {} of the {} benefactors that keep its log have "
        "lost it, too",
        quorum_->members.size() / 2 + 1, quorum_->members.size());
  }
  if (promise_) return;
  // A benefactor that only lost its link to that manager should go back to it.
  for (auto& [number, visitor] : visitors_) {
    if (visitor->held && now - visitor->since > kGather) visitor->send_away();
  }
}

bool Rebuilder::dismiss() {
  // A benefactor that has promised no longer serves that manager. So the take-over continues as
  // long as promises are pending.
  const bool asking = promise_ && reactor_.clock().now() - asked_ <= limits::kCallDeadline;
  if (reading_.source != nullptr || lifetime_.watch().expired() || asking) return false;
  quorum_.reset();
  promise_ = {};
  for (auto& [number, visitor] : visitors_) visitor->send_away();
  return true;
}

/// Excludes a benefactor that knows a later manager than the followed one: that
/// manager serves the pool.
bool Rebuilder::is_member(const Visitor& visitor) const {
  const auto& members = quorum_->members;
  return visitor.stores_log() && visitor.registration->newest_epoch <= quorum_->epoch &&
         std::find(members.begin(), members.end(), visitor.registration->benefactor) !=
             members.end();
}

/// Each once: one benefactor may have come over several links.
std::size_t Rebuilder::members_here(bool only_promised) const {
  std::set<BenefactorId> members;
  for (const auto& [number, each] : visitors_) {
    if (is_member(*each) && (each->promised || !only_promised)) {
      members.insert(each->registration->benefactor);
    }
  }
  return members.size();
}

/// Returns true when readable logs have every answered record. The newest log of the promising
/// benefactors suffices. Half of all logs suffice, too: each record is on more than half.
bool Rebuilder::have_all_answered_records() const {
  std::set<BenefactorId> readable;
  std::pair<Epoch, std::uint64_t> newest;
  std::pair<Epoch, std::uint64_t> newest_readable;
  for (const auto& [number, each] : visitors_) {
    if (!each->promised || !is_member(*each)) continue;
    newest = std::max<decltype(newest)>(newest, each->rank());
    if (each->bad) continue;
    readable.insert(each->registration->benefactor);
    newest_readable = std::max<decltype(newest)>(newest_readable, each->rank());
  }
  return !readable.empty() &&
         (newest_readable == newest || 2 * readable.size() >= quorum_->members.size());
}

void Rebuilder::seek_promises() {
  if (reading_.source != nullptr) return;
  if (!is_majority(members_here(false))) return;
  asked_ = reactor_.clock().now();
  promise_ = std::max(promise_, next_block(std::max(newest_epoch_, quorum_->epoch)));
  for (auto& [number, each] : visitors_) {
    if (!is_member(*each) || std::exchange(each->asked, true)) continue;
    // Closing the peer drops its calls, so the visitor still exists in this callback.
    each->peer().call(
        msg::ReadLog{0, promise_}, limits::kCallDeadline,
        [this, visitor = each.get(), alive = lifetime_.watch()](const rpc::Answer& answer) {
          if (alive.expired() || !visitor->asked || !answer) return;
          visitor->promised = true;
          if (reading_.source == nullptr) read_best();
        });
  }
}

// ---- reading ----------------------------------------------------------------------------------

void Rebuilder::give_up() {
  time_is_up_ = true;
  if (reading_.source != nullptr) return;
  reactor_.cancel(gather_timer_);
  const bool here = std::ranges::any_of(visitors_, &Visitor::has_log,
                                        [](const auto& each) -> Visitor& { return *each.second; });
  // A benefactor that is between two registrations comes back within kGather.
  here ? read_best() : gather();
}

void Rebuilder::on_accept(std::unique_ptr<transport::Link> link) {
  if (!membership_.admits(*link)) {
    return log::warning("a link was closed: its other end has not proven that it is a member");
  }
  const std::uint64_t number = ++accepted_;
  visitors_.emplace(number, std::make_unique<Visitor>(*this, number, std::move(link)));
}

void Rebuilder::arrived(Visitor& visitor) {
  const msg::RegisterBenefactor& registration = *visitor.registration;
  newest_epoch_ = std::max(newest_epoch_, registration.newest_epoch);
  newest_ = std::max(newest_, {registration.newest_epoch, registration.newest_sequence});
  log::info("benefactor on {} has {}", registration.host_name,
            visitor.has_log() ? "a log of the metadata" : "no log of the metadata");
  if (standby_) return seek_promises();
  if (!visitor.has_log() || reading_.source != nullptr) return;
  if (time_is_up_) return read_best();
  if (!gathering_) gather();
}

void Rebuilder::gather() {
  gathering_ = true;
  gather_timer_ = reactor_.schedule_after(kGather, [this] { read_best(); });
}

void Rebuilder::left(Visitor& visitor) {
  const bool reading = reading_.source == &visitor;
  visitors_.erase(visitor.number());
  if (reading) read_best();
}

void Rebuilder::read_best() {
  reading_.source = nullptr;
  if (standby_ && !is_majority(members_here(true))) return;
  if (standby_ && !have_all_answered_records()) {
    if (!std::exchange(wait_logged_, true)) {
      log::warning(
          "all that was answered may be in a log alone that cannot be read; waits for others");
    }
    return;
  }
  for (const auto& [number, visitor] : visitors_) {
    if (visitor->has_log() &&
        (reading_.source == nullptr || visitor->rank() > reading_.source->rank())) {
      reading_.source = visitor.get();
    }
  }
  gathering_ = false;
  reading_.log.clear();
  if (reading_.source == nullptr) {
    if (time_is_up_) {
      finish(fail(reading_.found_damage ? Code::kCorrupt : Code::kNotFound, "manager.rebuild"));
    }
    return;
  }
  // A majority of promises guarantees that the newest log has every answered record.
  if (standby_ || reading_.source->rank() >= newest_ || time_is_up_) return read_more();
  if (!wait_logged_) {
    log::warning(
        "record {} of epoch {} may have been answered, and no log has it; waits for others",
        newest_.second, newest_.first.value);
  }
  wait_logged_ = true;
  reading_.source = nullptr;
  gather();
}

void Rebuilder::read_more() {
  reading_.source->peer().call(
      msg::ReadLog{reading_.log.size()}, limits::kCallDeadline,
      [this, asked = reading_.source, alive = lifetime_.watch()](const rpc::Answer& answer) {
        if (!alive.expired() && asked == reading_.source) read(*asked, answer);
      });
}

void Rebuilder::read(Visitor& visitor, const rpc::Answer& answer) {
  const auto* const reply = answer ? std::get_if<msg::ReadLog::Reply>(&*answer) : nullptr;
  if (reply != nullptr) reading_.log += reply->bytes;
  if (reply != nullptr && reply->more && !reply->bytes.empty()) return read_more();
  Status written = fail(Code::kPeerLost, "manager.rebuild");
  if (reply != nullptr) written = write();
  if (written) return;
  log::warning("the log of the benefactor on {} cannot be used, and is passed over: {}",
               visitor.registration->host_name, describe(written.error()));
  visitor.bad = true;
  if (reply != nullptr) {
    reading_.found_damage = true;
    newest_ = std::max<decltype(newest_)>(newest_, visitor.rank());
  }
  read_best();
}

/// Writes the journal as one snapshot: after a crash it is complete or empty. First applies the
/// commands to a State, to prove them valid.
Status Rebuilder::write() {
  const LogKeys keys(membership_.log_key());
  STDCHK_ASSIGN(DecodedLog decoded, decode_log(reading_.log, &keys));
  // The benefactor registered a longer log, or the log of a later manager.
  const msg::RegisterBenefactor& said = *reading_.source->registration;
  if (decoded.epoch != said.log_epoch || decoded.sequence < said.log_sequence) {
    return fail(Code::kStale, "manager.log");
  }
  std::vector<Command>& commands = decoded.commands;
  State state;
  for (const Command& command : commands) {
    if (const auto applied = state.apply(command); !applied) return fail(applied.error());
  }
  found_ = {
      reading_.source->registration->host_name, reading_.source->registration->log_epoch,
      commands.size(),
      static_cast<std::size_t>(
          std::count_if(visitors_.begin(), visitors_.end(),
                        [](const auto& each) { return each.second->registration; })),
      reading_.source->rank() >= newest_ && std::ranges::none_of(visitors_, [&](const auto& each) {
        const auto& there = each.second->registration;
        return there && state.lacks(there->newest_epoch, there->newest_sequence);
      })};
  const Epoch newest = std::max({newest_epoch_, state.epoch(), found_.epoch});
  const BeginEpoch before_first{{std::max(next_block(newest), promise_).value - 1}};
  commands.emplace_back(before_first);
  journal_.write_snapshot(std::move(commands));
  // Appends the command a second time, to learn when all is durable.
  journal_.append(before_first, [this, alive = lifetime_.watch()](const Status& status) {
    if (alive.expired()) return;
    if (status) return finish(found_);
    finish(fail(status.error()));
  });
  return {};
}

void Rebuilder::finish(Result<Found> found) {
  reactor_.cancel(give_up_timer_);
  reactor_.cancel(gather_timer_);
  reading_.source = nullptr;
  // No more callbacks; the Service loads the journal anew.
  lifetime_.end();
  gather_timer_ = reactor_.schedule_after(Duration::zero(), [this, found] {
    journal_.stop();
    if (const Done done = std::exchange(done_, {})) done(found);
  });
}

}  // namespace stdchk::manager
