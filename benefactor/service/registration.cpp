#include "benefactor/service/registration.h"

#include <utility>

#include "benefactor/service/refuse.h"
#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::benefactor {
namespace {

constexpr Duration kBackOffMax = std::chrono::milliseconds(2000);

}  // namespace

Registration::Registration(Reactor& reactor, Parts parts)
    : reactor_(reactor), parts_(parts), managers_(parts.config.manager_address, kBackOffMax) {}

Registration::~Registration() { reactor_.cancel(timer_); }

void Registration::connect() {
  timer_ = {};
  auto peer = rpc::Peer::connect(reactor_, parts_.control, managers_.current(), *this,
                                 limits::kConnectDeadline);
  if (!peer) return lose_manager(peer.error());
  manager_ = std::move(*peer);
  register_now();
}

void Registration::register_now() {
  msg::RegisterBenefactor request;
  request.life_high = parts_.config.life.high;
  request.life_low = parts_.config.life.low;
  request.addresses = parts_.clients.addresses();
  request.host_token = parts_.config.host_token;
  request.host_name = parts_.config.host_name;
  request.arena_bytes = parts_.arena_bytes;
  request.pid = parts_.config.pid;
  request.newest_epoch = parts_.membership.epoch;
  request.log_bytes_max = parts_.log.bytes_max();
  request.log_epoch = parts_.log.epoch();
  request.log_sequence = parts_.log.sequence();
  request.newest_sequence = newest_sequence_;
  request.benefactor = parts_.membership.id;
  request.proof = proof_;
  manager_->call(std::move(request), limits::kCallDeadline,
                 [this](const rpc::Answer& answer) { on_register_answer(answer); });
}

void Registration::on_register_answer(const rpc::Answer& answer) {
  if (!answer) return refused(answer.error());
  const auto* reply = std::get_if<msg::RegisterBenefactor::Reply>(&*answer);
  if (reply == nullptr || !reply->benefactor || !reply->epoch) {
    return lose_manager(Error{Code::kMalformed, 0, "benefactor.register"});
  }
  if (reply->epoch < parts_.membership.epoch) {
    log::error(
        "the manager at {} is refused: its epoch is {}, and a manager with epoch {} has taken over",
        managers_.current(), reply->epoch.value, parts_.membership.epoch.value);
    return lose_manager(Error{Code::kFenced, 0, "benefactor.register"});
  }
  accept(*reply);
}

void Registration::refused(const rpc::Failure& failure) {
  const Error why = failure.error;
  // A link that has gone is reported by on_closed as well; only that path starts anew.
  if (why.code == Code::kPeerLost || !manager_) return;
  if (why.code == Code::kRefused && parts_.config.on_refused) {
    parts_.config.on_refused(failure.text());
  }
  lose_manager(why);
}

/// Begins to serve the manager that has registered this benefactor.
void Registration::accept(const msg::RegisterBenefactor::Reply& reply) {
  Membership& membership = parts_.membership;
  const bool is_new = membership.epoch != reply.epoch;
  if (membership.epoch && is_new) parts_.clients.fence_all();
  parts_.clients.fence_below(reply.first_client);
  if (is_new) {
    newest_sequence_ = 0;
    proof_ = reply.proof;
    // Tickets of the previous epoch may still arrive; their clients learn that they are fenced.
    const auto& keyring = parts_.config.keyring;
    if (keyring && first_client_) keyring->refuse_before(first_client_.value);
    first_client_ = reply.first_client;
  }
  membership.epoch = reply.epoch;
  membership.id = reply.benefactor;
  manager_->set_sender(membership.id.value);
  parts_.requests.drain_into(reply.config.drain_directory, reply.config.drain_rate_bytes_per_s);
  membership.registered = true;
  managers_.answered();
  log::info("registered with {} as benefactor {} in epoch {}", managers_.current(),
            membership.id.value, membership.epoch.value);
  if (parts_.config.on_registered) parts_.config.on_registered(reply);
  send_heartbeat();
}

void Registration::send_heartbeat() {
  timer_ = {};
  if (!manager_ || !parts_.membership.registered) return;
  manager_->call(msg::BenefactorHeartbeat{parts_.membership.id, on_may_go_ != nullptr},
                 limits::kLease, [this](const rpc::Answer& answer) { on_heartbeat(answer); });
  timer_ = reactor_.schedule_after(limits::kHeartbeatInterval, [this] { send_heartbeat(); });
}

void Registration::on_heartbeat(const rpc::Answer& answer) {
  if (answer) {
    const auto* reply = std::get_if<msg::BenefactorHeartbeat::Reply>(&*answer);
    if (reply == nullptr) return;
    if (reply->log_sequence >= newest_sequence_) {
      newest_sequence_ = reply->log_sequence;
      proof_ = reply->proof;
    }
    if (reply->may_go && on_may_go_) on_may_go_(true);
    return;
  }
  if (!manager_ || answer.error().error.code == Code::kPeerLost) return;
  // The manager forgot this benefactor, or does not answer: registers again with the same life.
  lose_manager(answer.error().error);
}

void Registration::leave(std::function<void(bool done)> may_go) {
  on_may_go_ = std::move(may_go);
  if (!parts_.membership.registered) return on_may_go_(false);
  reactor_.cancel(timer_);
  send_heartbeat();
}

void Registration::lose_manager(Error why) {
  parts_.requests.lose_manager();
  if (on_may_go_) return on_may_go_(false);
  // Logs each loss once, not each attempt.
  if (parts_.membership.registered || !managers_.failing()) {
    log::warning("the manager at {} is not there, trying again: {}", managers_.current(),
                 describe(why));
  }
  const bool had_one = std::exchange(parts_.membership.registered, false);
  reactor_.cancel(timer_);
  // The peer's callback may have called this function, so the reactor destroys the peer later.
  if (manager_) {
    std::shared_ptr<rpc::Peer> old = std::move(manager_);
    reactor_.schedule_after(Duration{}, [old] {});
  }
  // Perhaps only the link is lost, so the benefactor asks the same manager first. A standby would
  // count the benefactor's arrival as a sign that the manager is lost.
  timer_ = reactor_.schedule_after(had_one ? managers_.delay_before_retry() : managers_.next(),
                                   [this] { connect(); });
}

void Registration::on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                              rpc::Responder respond) {
  constexpr const char* kWhere = "benefactor.request";
  if (&peer != manager_.get()) {
    return respond(refuse(Code::kRefused, kWhere, "The link to this manager was given up."));
  }
  if (!has_proven(peer)) {
    return respond(refuse(Code::kRefused, kWhere, "No manager has proven itself."));
  }
  parts_.requests.serve(std::move(request.body), {deadline, std::move(respond), manager_});
}

/// A link to the manager counts as up after the peer has proven its role.
bool Registration::has_proven(const rpc::Peer& peer) const {
  const auto* const member = peer.link().peer();
  return parts_.config.trusts_unproven_links ||
         (member != nullptr && member->member.role == transport::secure::Role::kManager);
}

void Registration::on_closed(rpc::Peer& peer, Error why) {
  if (&peer == manager_.get()) lose_manager(why);
}

}  // namespace stdchk::benefactor
