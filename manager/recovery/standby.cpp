#include "manager/recovery/standby.h"

#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kInterval = 500ms;
constexpr Duration kAnnounceInterval = 2s;

}  // namespace

Standby::Standby(Reactor& reactor, transport::Endpoint& endpoint, Config config)
    : reactor_(reactor), endpoint_(endpoint), config_(std::move(config)) {}

Standby::~Standby() { reactor_.cancel(timer_); }

void Standby::watch(Rebuilder& rebuilder) {
  rebuilder_ = &rebuilder;
  watch_manager_once();
}

void Standby::announce(Epoch own) {
  rebuilder_ = nullptr;
  quorum_ = {own, {}};
}

void Standby::watch_manager_once() {
  const Duration interval = rebuilder_ != nullptr ? kInterval : kAnnounceInterval;
  timer_ = reactor_.schedule_after(interval, [this] { watch_manager_once(); });
  if (!asking_) ask();
  if (rebuilder_ == nullptr || quorum_.members.empty()) return;
  if (reactor_.clock().now() - heard_ <= config_.silence) return;
  follows_ = false;
  rebuilder_->admit(quorum_);
}

void Standby::ask() {
  if (lost_) peer_.reset();
  lost_ = false;
  if (!peer_) {
    auto peer =
        rpc::Peer::connect(reactor_, endpoint_, config_.manager, *this, limits::kConnectDeadline);
    if (!peer) return log::debug("the manager cannot be reached: {}", describe(peer.error()));
    peer_ = std::move(*peer);
  }
  asking_ = true;
  peer_->call(msg::FollowManager{config_.address, quorum_.epoch, seen_}, limits::kConnectDeadline,
              [this](const rpc::Answer& answer) { answered(answer); });
}

void Standby::answered(const rpc::Answer& answer) {
  asking_ = false;
  const auto* const reply = answer ? std::get_if<msg::FollowManager::Reply>(&*answer) : nullptr;
  if (reply != nullptr) {
    if (rebuilder_ != nullptr) followed(*reply);
    return;
  }
  lost_ = true;
  if (answer || rebuilder_ == nullptr) return;
  const rpc::Failure& failure = answer.error();
  const bool refused = failure.error.code == Code::kExists || failure.error.code == Code::kRefused;
  if (refused && config_.on_refused) {
    config_.on_refused(failure.text());
  }
}

void Standby::followed(const msg::FollowManager::Reply& reply) {
  // Too late: benefactors have promised to leave that manager.
  if (!rebuilder_->dismiss()) return;
  heard_ = reactor_.clock().now();
  quorum_ = {reply.epoch, reply.quorum};
  seen_ = reply.number;
  if (!follows_) {
    log::info("The standby follows the manager at {}, of epoch {}.", config_.manager,
              reply.epoch.value);
    if (config_.on_followed) config_.on_followed();
  }
  follows_ = true;
}

void Standby::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) {
  respond(tl::unexpected(rpc::Failure{Error{Code::kUnsupported, 0, "standby.request"}, {}, {}}));
}

void Standby::on_closed(rpc::Peer&, Error) { lost_ = true; }

}  // namespace stdchk::manager
