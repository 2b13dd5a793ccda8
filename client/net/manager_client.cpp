#include "client/net/manager_client.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
constexpr Duration kBackOffMax = 1s;
/// A manager counts as silent after this many failed attempts.
constexpr std::uint64_t kAttemptsMin = 3;

rpc::Answer failure(Code code, const char* where) {
  return tl::unexpected(rpc::Failure{Error{code, 0, where}, {}, {}});
}

/// True when the request ends something that otherwise stays as long as this client.
bool must_be_delivered(const msg::Request& request) {
  return std::holds_alternative<msg::CloseSession>(request) ||
         std::holds_alternative<msg::Unpin>(request);
}

/// Sets the client's present number in a request that may be repeated, and in a change of names
/// before its first sending. Returns whether the request may be repeated.
bool ask_as(ClientId client, bool sent_before, msg::Request& request) {
  return std::visit(
      [&]<class M>(M& typed) {
        constexpr bool kAgain = msg::may_ask_again(M::kKind);
        constexpr bool kChangesNames = M::kKind == msg::RequestKind::kChangesNames;
        if constexpr (requires { typed.client; }) {
          if (kAgain || (kChangesNames && !sent_before)) typed.client = client;
        }
        return kAgain;
      },
      request);
}

}  // namespace

ManagerClient::ManagerClient(Reactor& reactor, transport::Endpoint& endpoint, Config config,
                             ManagerListener& listener)
    : reactor_(reactor),
      endpoint_(endpoint),
      config_(std::move(config)),
      listener_(listener),
      managers_(config_.address, kBackOffMax) {}

ManagerClient::~ManagerClient() {
  stopped_ = true;
  reactor_.cancel(reconnect_);
  reactor_.cancel(heartbeat_);
  for (auto& [id, call] : calls_) reactor_.cancel(call.timer);
  calls_.clear();
  ++attempt_;
  peer_.reset();
}

void ManagerClient::start() {
  answered_last_ = reactor_.clock().now();
  connect();
}

bool ManagerClient::silent() const {
  return attempt_ - answered_attempt_ >= kAttemptsMin &&
         reactor_.clock().now() - answered_last_ >= limits::kManagerDeadline;
}

void ManagerClient::connect() {
  reconnect_ = {};
  if (stopped_) return;
  ++attempt_;
  peer_.reset();
  auto peer =
      rpc::Peer::connect(reactor_, endpoint_, managers_.current(), *this, limits::kConnectDeadline);
  if (!peer.has_value()) return connect_later(peer.error());
  peer_ = std::move(*peer);
  peer_->set_sender(identity_.client.value);
  config_.registration.resume = identity_.client;
  config_.registration.newest_epoch = identity_.epoch;
  config_.registration.proof = identity_.proof;
  const Time sent = reactor_.clock().now();
  peer_->call(config_.registration, limits::kConnectDeadline,
              [this, sent, attempt = attempt_](rpc::Answer answer) {
                if (attempt != attempt_) return;
                if (answer.has_value()) heard_since_ = sent;
                on_register(std::move(answer));
              });
}

void ManagerClient::connect_later(Error why) {
  registered_ = false;
  last_error_ = why;
  reactor_.cancel(heartbeat_);
  heartbeat_ = {};
  if (stopped_ || reconnect_) return;
  if (!logged_lost_) {
    log::warning("the manager at {} is lost: {}", managers_.current(), describe(why));
  }
  logged_lost_ = true;
  reconnect_ = reactor_.schedule_after(managers_.next(), [this] { connect(); });
}

void ManagerClient::on_connected(rpc::Peer&) {}

void ManagerClient::on_closed(rpc::Peer&, Error why) {
  for (auto& [id, call] : calls_) call.sent = false;
  connect_later(why);
}

void ManagerClient::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) {
  respond(failure(Code::kUnsupported, "client.request"));
}

void ManagerClient::on_notice(rpc::Peer&, msg::Notice notice) {
  if (const auto* invalidate = std::get_if<msg::Invalidate>(&notice)) {
    listener_.on_invalidate(*invalidate);
  }
}

void ManagerClient::on_register(rpc::Answer answer) {
  if (!answer.has_value()) {
    const Error why = answer.error().error;
    last_error_ = why;
    if (retry_class(why.code) == Retry::kNo) {
      log::error("the manager at {} refuses this client: {}", managers_.current(), describe(why));
      // Waiting does not help, so every call fails at once.
      std::map<std::uint64_t, Call> calls;
      calls.swap(calls_);
      for (auto& [id, call] : calls) {
        reactor_.cancel(call.timer);
        call.done(tl::unexpected(answer.error()));
      }
    }
    return connect_later(why);
  }
  const auto* reply = std::get_if<msg::RegisterClient::Reply>(&*answer);
  if (reply == nullptr) return connect_later(Error{Code::kMalformed, 0, "client.register"});
  if (reply->epoch < identity_.epoch) {
    log::warning(
        "the manager at {} is refused: its epoch is {}, and a manager of epoch {} took over",
        managers_.current(), reply->epoch.value, identity_.epoch.value);
    return connect_later(Error{Code::kFenced, 0, "client.register"});
  }
  const bool same =
      identity_.client && reply->client == identity_.client && reply->epoch == identity_.epoch;
  if (logged_lost_) log::info("the manager at {} answers again", managers_.current());
  logged_lost_ = false;
  managers_.answered();
  identity_.client = reply->client;
  if (!identity_.first) identity_.first = identity_.client;
  identity_.epoch = reply->epoch;
  identity_.proof = reply->proof;
  peer_->set_sender(identity_.client.value);
  registered_ = true;
  answered_attempt_ = attempt_;
  answered_last_ = reactor_.clock().now();
  heartbeat_ = reactor_.schedule_after(limits::kHeartbeatInterval, [this] { heartbeat(); });
  listener_.on_registered(*reply, same);
  if (!same) drop_abandoned_calls();
  for (auto& [id, call] : calls_) {
    if (!call.sent) send(id, call);
  }
}

msg::WriterTotals ManagerClient::totals() const {
  msg::WriterTotals totals = listener_.writer_totals();
  totals.first = identity_.first;
  return totals;
}

void ManagerClient::heartbeat() {
  heartbeat_ = {};
  if (!registered_) return;
  heartbeat_ = reactor_.schedule_after(limits::kHeartbeatInterval, [this] { heartbeat(); });
  const msg::ClientHeartbeat beat{identity_.client, totals(), listener_.reader_totals(),
                                  listener_.reader_count()};
  const Time sent = reactor_.clock().now();
  peer_->call(beat, limits::kLease, [this, sent, attempt = attempt_](rpc::Answer answer) {
    if (attempt != attempt_ || !registered_) return;
    if (answer.has_value()) {
      heard_since_ = sent;
      answered_last_ = reactor_.clock().now();
      return;
    }
    const Error why = answer.error().error;
    if (why.code == Code::kPeerLost) return;
    register_anew(why);  // fenced, or silent for a whole lease
  });
}

/// Registers again, on a new link.
void ManagerClient::register_anew(Error why) {
  for (auto& [id, call] : calls_) call.sent = false;
  connect_later(why);
}

void ManagerClient::call(msg::Request request, Duration deadline, Callback done,
                         std::function<bool()> may_go, Callback late) {
  const std::uint64_t id = rpc::next_call_id();
  Call& call = calls_[id];
  call.request = std::move(request);
  call.deadline = reactor_.clock().now() + deadline;
  call.done = std::move(done);
  call.may_go = std::move(may_go);
  call.late = std::move(late);
  call.timer = reactor_.schedule_at(call.deadline, [this, id] { give_up(id); });
  if (registered_) send(id, call);
}

void ManagerClient::send_held() {
  if (!registered_) return;
  for (const std::uint64_t id : std::exchange(held_, {})) {
    const auto call = calls_.find(id);
    if (call != calls_.end() && !call->second.sent) send(id, call->second);
  }
}

void ManagerClient::send(std::uint64_t id, Call& call) {
  if (call.may_go && !call.may_go()) {
    held_.insert(id);
    return;
  }
  call.sent = true;
  const bool ask_again =
      ask_as(identity_.client, std::exchange(call.sent_before, true), call.request);
  const Duration left = call.given_up
                            ? limits::kManagerDeadline
                            : std::max(call.deadline - reactor_.clock().now(), Duration(1ms));
  peer_->call_as(id, call.request, left, [=, this, attempt = attempt_](rpc::Answer answer) {
    if (attempt != attempt_) return;
    if (!answer.has_value()) {
      const Code code = answer.error().error.code;
      // The next link sends the call again, or the call's timer ends it.
      if (code == Code::kPeerLost) return;
      if (code == Code::kFenced && ask_again) return register_anew(answer.error().error);
      if (code == Code::kDeadline) {
        give_up(id);
        const auto late = calls_.find(id);
        if (late != calls_.end() && registered_) send(id, late->second);
        return;
      }
    }
    finish(id, std::move(answer));
  });
}

void ManagerClient::give_up(std::uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end() || found->second.given_up) return;
  Call& call = found->second;
  if (!must_be_delivered(call.request) && !(call.sent_before && call.late)) {
    return finish(id, failure(Code::kManagerLost, "client.manager"));
  }
  call.given_up = true;
  call.may_go = nullptr;
  reactor_.cancel(call.timer);
  if (!call.late) call.late = [](const rpc::Answer&) {};
  const Callback done = std::exchange(call.done, std::move(call.late));
  done(failure(Code::kManagerLost, "client.manager"));
}

/// Drops repeated calls: the manager has forgotten this client, with the sessions and pins that
/// these calls should end.
void ManagerClient::drop_abandoned_calls() {
  std::erase_if(calls_, [](const auto& call) { return call.second.given_up; });
}

void ManagerClient::finish(std::uint64_t id, rpc::Answer answer) {
  auto call = calls_.extract(id);
  if (call.empty()) return;
  reactor_.cancel(call.mapped().timer);
  call.mapped().done(std::move(answer));
}

void ManagerClient::stop() {
  if (stopped_) return;
  stopped_ = true;
  reactor_.cancel(reconnect_);
  reactor_.cancel(heartbeat_);
  if (registered_) {
    const msg::GoodbyeClient goodbye{identity_.client, totals(), listener_.reader_totals()};
    peer_->call(goodbye, 1s, [](rpc::Answer) {});
  }
  registered_ = false;
  std::map<std::uint64_t, Call> calls;
  calls.swap(calls_);
  for (auto& [id, call] : calls) {
    reactor_.cancel(call.timer);
    call.done(failure(Code::kCancelled, "client.stop"));
  }
}

}  // namespace stdchk::client
