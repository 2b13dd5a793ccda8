#include "client/peers.h"

#include <algorithm>

#include "core/limits.h"
#include "core/log.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
constexpr Duration kBackOffMin = 200ms;
constexpr Duration kBackOffMax = 5s;
constexpr Duration kQueueFullWait = 1ms;

/// "ofi:tcp:host:port" is reached by the endpoint whose name is "ofi:tcp".
bool reaches(const transport::Endpoint& endpoint, const std::string& address) {
  const std::string_view name = endpoint.capabilities().name;
  return address.size() > name.size() && address.starts_with(name) && address[name.size()] == ':';
}

}  // namespace

void Transfer::complete(Status status) {
  BenefactorLink* link = link_;
  link_ = nullptr;
  finished(std::move(status));
  if (link != nullptr) link->start_waiting();
}

BenefactorLink::BenefactorLink(Peers& peers, msg::BenefactorInfo info) : peers_(peers) {
  update(std::move(info));
}

/// On the same host shared memory comes before every fabric.
void BenefactorLink::update(msg::BenefactorInfo info) {
  info_ = std::move(info);
  std::stable_partition(
      info_.addresses.begin(), info_.addresses.end(), [this](const auto& address) {
        return std::any_of(
            peers_.endpoints_.begin(), peers_.endpoints_.end(), [&](const auto* endpoint) {
              return endpoint->capabilities().same_host_only && reaches(*endpoint, address);
            });
      });
}

BenefactorLink::~BenefactorLink() {
  peers_.reactor_.cancel(retry_);
  fail_waiting(Error{Code::kPeerLost, 0, "client.benefactor"});
  state_ = State::kParked;
  peer_.reset();
}

void BenefactorLink::submit(Transfer& transfer) {
  if (state_ == State::kParked && transfer.is_write &&
      peers_.reactor_.clock().now() < parked_until_) {
    return peers_.fail_later(transfer, Error{Code::kPeerLost, 0, "client.benefactor parked"});
  }
  waiting_.push_back(&transfer);
  if (state_ == State::kReady) return start_waiting();
  if (state_ == State::kConnecting) return;
  state_ = State::kConnecting;
  next_address_ = 0;
  why_ = Error{Code::kPeerLost, 0, "client.benefactor: no transport in common"};
  connect_next();
}

void BenefactorLink::connect_next() {
  peer_.reset();
  while (next_address_ < info_.addresses.size()) {
    const std::string address = info_.addresses[next_address_++];
    for (transport::Endpoint* endpoint : peers_.endpoints_) {
      if (!reaches(*endpoint, address)) continue;
      if (endpoint->capabilities().same_host_only &&
          info_.host_token != peers_.config_.host_token) {
        continue;
      }
      auto peer =
          rpc::Peer::connect(peers_.reactor_, *endpoint, address, *this, limits::kConnectDeadline);
      if (!peer.has_value()) {
        why_ = peer.error();
        continue;
      }
      endpoint_ = endpoint;
      peer_ = std::move(*peer);
      peer_->set_sender(peers_.client_.value);
      peer_->call(msg::Attach{peers_.config_.secret, peers_.client_, info_.id},
                  limits::kConnectDeadline,
                  [this, alive = std::weak_ptr(alive_)](rpc::Answer answer) {
                    if (!alive.expired()) on_attached(std::move(answer));
                  });
      return;
    }
  }
  park(why_);
}

void BenefactorLink::on_connected(rpc::Peer&) {}

void BenefactorLink::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) {
  respond(tl::unexpected(
      rpc::Failure{Error{Code::kUnsupported, 0, "client.request"}, "clients serve nothing", {}}));
}

void BenefactorLink::on_attached(rpc::Answer answer) {
  if (state_ != State::kConnecting) return;
  if (!answer.has_value()) {
    const Error why = answer.error().error;
    if (why.code == Code::kPeerLost) return;  // on_closed follows
    log::warning("benefactor {} on {} refuses: {}", info_.id.value, info_.host_name, describe(why));
    why_ = why;
    // The peer is in the middle of a callback: it goes in the next turn.
    return try_next_address();
  }
  const auto* attach = std::get_if<msg::Attach::Reply>(&*answer);
  if (attach == nullptr) return;
  key_ = transport::RemoteKey{attach->key, attach->base, attach->length};
  state_ = State::kReady;
  back_off_ = Duration::zero();
  const std::string_view used = endpoint_->capabilities().name;
  if (info_.host_token == peers_.config_.host_token && !told_fallback_ &&
      !endpoint_->capabilities().same_host_only && peers_.endpoints_.size() > 1) {
    told_fallback_ = true;
    log::info("benefactor {} is on this host but is reached by {}", info_.id.value, used);
  }
  start_waiting();
}

/// A failed attach and the end of its link may both come, in one turn: one next attempt follows.
void BenefactorLink::try_next_address() {
  peers_.reactor_.cancel(retry_);
  retry_ = peers_.reactor_.schedule_after(Duration::zero(), [this] {
    if (state_ == State::kConnecting) connect_next();
  });
}

void BenefactorLink::on_closed(rpc::Peer&, Error why) {
  if (state_ == State::kConnecting) {
    why_ = why;
    return try_next_address();
  }
  log::warning("the link to benefactor {} on {} was lost: {}", info_.id.value, info_.host_name,
               describe(why));
  park(why);
}

void BenefactorLink::park(Error why) {
  state_ = State::kParked;
  back_off_ = std::clamp(back_off_ * 2, kBackOffMin, kBackOffMax);
  parked_until_ = peers_.reactor_.clock().now() + back_off_;
  fail_waiting(why);
}

void BenefactorLink::fail_waiting(Error why) {
  std::deque<Transfer*> waiting;
  waiting.swap(waiting_);
  for (Transfer* transfer : waiting) peers_.fail_later(*transfer, why);
}

Status BenefactorLink::start(Transfer& transfer) {
  const transport::MemoryRegion* region = transfer.memory->region(*endpoint_);
  STDCHK_ASSERT(region != nullptr);
  std::array<transport::LocalPiece, transport::kPiecesMax> pieces;
  std::size_t count = 0;
  for (const MutableByteSpan piece : transfer.pieces) {
    if (!piece.empty()) pieces[count++] = {piece.data(), piece.size(), region};
  }
  const std::span<const transport::LocalPiece> used(pieces.data(), count);
  const std::uint64_t offset = transfer.at.offset + transfer.skip;
  transfer.link_ = this;
  const Status started = transfer.is_write ? peer_->link().write(used, key_, offset, transfer)
                                           : peer_->link().read(used, key_, offset, transfer);
  if (!started.has_value()) transfer.link_ = nullptr;
  return started;
}

void BenefactorLink::start_waiting() {
  while (state_ == State::kReady && !waiting_.empty()) {
    Transfer& transfer = *waiting_.front();
    const Status started = start(transfer);
    if (!started.has_value() && started.error().code == Code::kWouldBlock) {
      peers_.reactor_.cancel(retry_);
      retry_ = peers_.reactor_.schedule_after(kQueueFullWait, [this] { start_waiting(); });
      return;
    }
    waiting_.pop_front();
    if (!started.has_value()) peers_.fail_later(transfer, started.error());
  }
}

Peers::Peers(Reactor& reactor, std::vector<transport::Endpoint*> endpoints, Config config)
    : reactor_(reactor), endpoints_(std::move(endpoints)), config_(std::move(config)) {}

Peers::~Peers() { close(); }

void Peers::close() {
  // A link that is destroyed finishes its transfers, which may submit again: not to these.
  std::map<BenefactorId, std::unique_ptr<BenefactorLink>> links;
  links.swap(links_);
}

void Peers::update(const std::vector<msg::BenefactorInfo>& benefactors) {
  std::set<BenefactorId> listed;
  for (const msg::BenefactorInfo& info : benefactors) {
    if (info.state == msg::BenefactorState::kGone) continue;
    listed.insert(info.id);
    auto& link = links_[info.id];
    if (link == nullptr) {
      link = std::make_unique<BenefactorLink>(*this, info);
    } else {
      link->update(info);
    }
  }
  std::vector<std::unique_ptr<BenefactorLink>> gone;
  for (auto it = links_.begin(); it != links_.end();) {
    if (listed.contains(it->first)) {
      ++it;
      continue;
    }
    gone.push_back(std::move(it->second));
    it = links_.erase(it);
  }
  // Not at once: this may run within a callback of one of them.
  if (!gone.empty()) {
    auto keep = std::make_shared<std::vector<std::unique_ptr<BenefactorLink>>>(std::move(gone));
    reactor_.schedule_after(Duration::zero(), [keep] { keep->clear(); });
  }
}

void Peers::submit(Transfer& transfer) {
  const auto found = links_.find(transfer.at.benefactor);
  if (found == links_.end()) {
    return fail_later(transfer, Error{Code::kPeerLost, 0, "client.benefactor unknown"});
  }
  found->second->submit(transfer);
}

void Peers::fail_later(Transfer& transfer, Error why) {
  reactor_.schedule_after(Duration::zero(), [&transfer, why] { transfer.finished(fail(why)); });
}

}  // namespace stdchk::client
