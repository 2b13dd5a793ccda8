#include "client/net/rail.h"

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {
namespace {

/// Grants that are remembered as presented. To present a grant twice is no error.
constexpr std::size_t kPresentedMax = 4096;

}  // namespace

Rail::Rail(RailOwner& owner, Reactor& reactor, std::string address,
           std::vector<transport::Endpoint*> endpoints, std::size_t first)
    : owner_(owner),
      reactor_(reactor),
      address_(std::move(address)),
      endpoints_(std::move(endpoints)),
      current_(first % endpoints_.size()) {}

Rail::~Rail() {
  state_ = State::kParked;
  peer_.reset();
}

bool Rail::open(const msg::Attach& attach, const std::optional<transport::secure::Ticket>& ticket,
                bool parked_too) {
  if (state_ == State::kReady || state_ == State::kConnecting) return true;
  if (state_ == State::kParked && !parked_too && reactor_.clock().now() < failure_.parked_until) {
    return false;
  }
  attach_ = attach;
  ticket_ = ticket;
  endpoints_tried_ = 0;
  return connect();
}

/// Connects by the current endpoint; on failure, by the next endpoints in turn. Returns false when
/// all endpoints failed and the rail is parked.
bool Rail::connect() {
  peer_.reset();
  for (;;) {
    auto peer = rpc::Peer::connect(reactor_, endpoint(), address_, *this, limits::kConnectDeadline,
                                   ticket_ ? &*ticket_ : nullptr);
    if (peer.has_value()) {
      peer_ = std::move(*peer);
      break;
    }
    if (++endpoints_tried_ >= endpoints_.size()) {
      set_parked(peer.error());
      return false;
    }
    current_ = (current_ + 1) % endpoints_.size();
  }
  state_ = State::kConnecting;
  peer_->set_sender(attach_.client.value);
  peer_->call(attach_, limits::kConnectDeadline,
              [this, alive = lifetime_.watch()](rpc::Answer answer) {
                if (!alive.expired()) on_attached(std::move(answer));
              });
  return true;
}

void Rail::later(void (Rail::*call)()) {
  reactor_.schedule_after(Duration::zero(), [this, call, alive = lifetime_.watch()] {
    if (!alive.expired()) (this->*call)();
  });
}

void Rail::connect_by_next() {
  moves_on_ = false;
  current_ = (current_ + 1) % endpoints_.size();
  if (!connect()) owner_.on_parked(*this);
}

void Rail::drop_peer() {
  if (state_ == State::kParked) peer_.reset();
}

void Rail::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) {
  respond(tl::unexpected(
      rpc::Failure{Error{Code::kUnsupported, 0, "client.request"}, "clients serve nothing", {}}));
}

void Rail::on_attached(rpc::Answer answer) {
  if (state_ != State::kConnecting || moves_on_) return;
  if (!answer.has_value()) {
    // A lost link is reported by on_closed(), too.
    if (answer.error().error.code != Code::kPeerLost) park(answer.error().error);
    return;
  }
  const auto* attach = std::get_if<msg::Attach::Reply>(&*answer);
  if (attach == nullptr) return park(Error{Code::kMalformed, 0, "client.attach"});
  key_ = transport::RemoteKey{attach->key, attach->base, attach->length};
  const auto* direct = dynamic_cast<const transport::DirectlyReadable*>(&link());
  direct_memory_ = direct == nullptr ? nullptr : direct->direct_memory(key_);
  presented_.clear();
  state_ = State::kReady;
  failure_.back_off.reset();
  full_ = failure_.logged = false;
  meter_.reset();
  owner_.on_ready(*this);
}

void Rail::on_closed(rpc::Peer&, Error why) { park(why); }

/// Runs within callbacks of the peer, so drop_peer() destroys the peer later.
void Rail::park(Error why) {
  if (state_ == State::kParked || moves_on_) return;
  if (state_ == State::kConnecting && ++endpoints_tried_ < endpoints_.size()) {
    moves_on_ = true;
    return later(&Rail::connect_by_next);
  }
  set_parked(why);
  owner_.on_parked(*this);
}

void Rail::set_parked(Error why) {
  if (state_ == State::kReady) {
    log::warning("the link to {} was lost: {}", address_, describe(why));
  } else if (!failure_.logged) {
    log::info("{} cannot be used at present: {}", address_, describe(why));
  }
  failure_.logged = true;
  failure_.why = why;
  state_ = State::kParked;
  direct_memory_.reset();
  failure_.parked_until = reactor_.clock().now() + failure_.back_off.next();
  later(&Rail::drop_peer);
}

Status Rail::present(const Grant& grant) {
  if (!endpoint().capabilities().checks_writes || presented_.contains(grant.id.value)) return {};
  STDCHK_TRY(link().present(key_, grant));
  if (presented_.size() >= kPresentedMax) presented_.clear();
  presented_.insert(grant.id.value);
  return {};
}

void Rail::count_started(std::uint64_t bytes) { meter_.started(bytes, reactor_.clock().now()); }

void Rail::count_ended(std::uint64_t bytes, bool good) {
  full_ = false;
  meter_.ended(bytes, good, reactor_.clock().now());
}

}  // namespace stdchk::client
