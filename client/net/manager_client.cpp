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
constexpr std::uint64_t kAttemptsMin = 3;  // that failed, of a manager that is called silent

rpc::Answer failure(Code code, const char* where) {
  return tl::unexpected(rpc::Failure{Error{code, 0, where}, {}, {}});
}

/// It ends something that would stay as long as this client.
bool must_arrive(const msg::Request& request) {
  return std::holds_alternative<msg::CloseSession>(request) ||
         std::holds_alternative<msg::Unpin>(request);
}

/// Puts the client's number of now into what may be asked again, whenever it was made, and into a
/// change of names that nobody has been sent yet. Answers whether it may be asked again.
bool ask_as(ClientId client, bool sent_before, msg::Request& request) {
  return std::visit(
      [&]<class M>(M& one) {
        constexpr bool kAgain = msg::may_ask_again(M::kKind);
        constexpr bool kChangesNames = M::kKind == msg::RequestKind::kChangesNames;
        if constexpr (requires { one.client; }) {
          if (kAgain || (kChangesNames && !sent_before)) one.client = client;
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
  peer_->set_sender(client_.value);
  config_.registration.resume = client_;
  config_.registration.newest_epoch = epoch_;
  config_.registration.proof = proof_;
  peer_->call(config_.registration, limits::kConnectDeadline,
              [this, attempt = attempt_](rpc::Answer answer) {
                if (attempt == attempt_) on_register(std::move(answer));
              });
}

void ManagerClient::connect_later(Error why) {
  registered_ = false;
  last_error_ = why;
  reactor_.cancel(heartbeat_);
  heartbeat_ = {};
  if (stopped_ || reconnect_) return;
  if (!told_lost_) {
    log::warning("the manager at {} is lost: {}", managers_.current(), describe(why));
  }
  told_lost_ = true;
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
      // Nothing will change that: every call is told why at once.
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
  if (reply->epoch < epoch_) {
    log::warning("the manager at {} has epoch {}, and one with epoch {} has taken over: refused",
                 managers_.current(), reply->epoch.value, epoch_.value);
    return connect_later(Error{Code::kFenced, 0, "client.register"});
  }
  const bool same = client_ && reply->client == client_ && reply->epoch == epoch_;
  if (told_lost_) log::info("the manager at {} answers again", managers_.current());
  told_lost_ = false;
  managers_.answered();
  client_ = reply->client;
  if (!first_) first_ = client_;
  epoch_ = reply->epoch;
  proof_ = reply->proof;
  peer_->set_sender(client_.value);
  registered_ = true;
  answered_attempt_ = attempt_;
  answered_last_ = reactor_.clock().now();
  heartbeat_ = reactor_.schedule_after(limits::kHeartbeatInterval, [this] { heartbeat(); });
  listener_.on_registered(*reply, same);
  if (!same) forget_given_up();
  for (auto& [id, call] : calls_) {
    if (!call.sent) send(id, call);
  }
}

msg::WriterTotals ManagerClient::totals() const {
  msg::WriterTotals totals = listener_.writer_totals();
  totals.first = first_;
  return totals;
}

void ManagerClient::heartbeat() {
  heartbeat_ = {};
  if (!registered_) return;
  heartbeat_ = reactor_.schedule_after(limits::kHeartbeatInterval, [this] { heartbeat(); });
  const msg::ClientHeartbeat beat{client_, totals(), listener_.reader_totals(),
                                  listener_.reader_count()};
  peer_->call(beat, limits::kLease, [this, attempt = attempt_](rpc::Answer answer) {
    if (attempt != attempt_ || !registered_) return;
    if (answer.has_value()) {
      answered_last_ = reactor_.clock().now();
      return;
    }
    const Error why = answer.error().error;
    if (why.code == Code::kPeerLost) return;
    register_anew(why);  // fenced, or silent for a whole lease
  });
}

/// On a new link.
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
  const bool ask_again = ask_as(client_, std::exchange(call.sent_before, true), call.request);
  const Duration left = call.given_up
                            ? limits::kManagerDeadline
                            : std::max(call.deadline - reactor_.clock().now(), Duration(1ms));
  peer_->call_as(id, call.request, left, [=, this, attempt = attempt_](rpc::Answer answer) {
    if (attempt != attempt_) return;
    if (!answer.has_value()) {
      const Code code = answer.error().error.code;
      // Sent again when the link is up again, or ended by its timer.
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
  if (!must_arrive(call.request) && !(call.sent_before && call.late)) {
    return finish(id, failure(Code::kManagerLost, "client.manager"));
  }
  call.given_up = true;
  call.may_go = nullptr;
  reactor_.cancel(call.timer);
  if (!call.late) call.late = [](const rpc::Answer&) {};
  const Callback done = std::exchange(call.done, std::move(call.late));
  done(failure(Code::kManagerLost, "client.manager"));
}

/// What they have left at the manager has ended with what this client was before.
void ManagerClient::forget_given_up() {
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
    const msg::GoodbyeClient goodbye{client_, totals(), listener_.reader_totals()};
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
