#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/sealed/sealed.h"

namespace stdchk::transport::secure {
namespace {

using namespace std::chrono_literals;
constexpr Duration kCheckInterval = 50ms;
constexpr Duration kWarningInterval = 10s;  ///< a stranger must not fill the log

}  // namespace

SecureEndpoint::SecureEndpoint(std::unique_ptr<Endpoint> inner, const Clock& clock,
                               std::shared_ptr<const Keyring> keyring)
    : inner_(std::move(inner)),
      clock_(clock),
      keyring_(std::move(keyring)),
      capabilities_(inner_->capabilities()) {
  STDCHK_ASSERT(keyring_ != nullptr);
  capabilities_.message_bytes_max -= Sealer::kTagBytes;
  inner_->withhold_access();
}

SecureEndpoint::~SecureEndpoint() {
  arriving_.clear();
  STDCHK_ASSERT(connecting_.empty() && ending_.empty());
}

Status SecureEndpoint::listen(AcceptHandler& handler) {
  accept_handler_ = &handler;
  return inner_->listen(*this);
}

Result<std::unique_ptr<Link>> SecureEndpoint::start_link(std::string_view address,
                                                         LinkHandler& handler, Duration deadline,
                                                         const Ticket* ticket) {
  auto link = std::make_unique<SecureLink>(
      *this, Handshake::connecting(keyring_->to(ticket), Handshake::fresh()), false,
      clock_.now() + deadline);
  STDCHK_ASSIGN(link->inner_, inner_->connect(address, *link, deadline));
  link->set_handler(handler);
  connecting_.push_back(link.get());
  return std::unique_ptr<Link>(std::move(link));
}

void SecureEndpoint::on_accept(std::unique_ptr<Link> inner) {
  auto link =
      std::make_unique<SecureLink>(*this, Handshake::accepting(*keyring_, Handshake::fresh()), true,
                                   clock_.now() + limits::kConnectDeadline);
  link->inner_ = std::move(inner);
  link->inner_->set_handler(*link);
  if (arriving_.size() >= kArrivingMax) arriving_.pop_front();
  arriving_.push_back(std::move(link));
}

/// Gives an authenticated link to its user.
void SecureEndpoint::hand_over(SecureLink& link) {
  if (!link.accepted_) {
    std::erase(connecting_, &link);
    link.handler_->on_connected(link);
    return;
  }
  const auto found =
      std::ranges::find_if(arriving_, [&](const auto& one) { return one.get() == &link; });
  std::unique_ptr<SecureLink> taken = std::move(*found);
  arriving_.erase(found);
  accept_handler_->on_accept(std::move(taken));
}

/// Forgets a link that was accepted and not proven.
void SecureEndpoint::refuse(SecureLink& link, const Error& why) {
  if (why.code != Code::kPeerLost && clock_.now() >= next_warning_) {
    log::warning("a connection to {} was refused: {}", address(), describe(why));
    next_warning_ = clock_.now() + kWarningInterval;
  }
  std::erase_if(arriving_, [&](const auto& one) { return one.get() == &link; });
}

bool SecureEndpoint::end_overdue() {
  const Time now = clock_.now();
  if ((arriving_.empty() && connecting_.empty()) || now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  const Error late{Code::kDeadline, 0, "handshake"};
  bool any = false;
  for (; !arriving_.empty() && arriving_.front()->late_at_ <= now; any = true) {
    refuse(*arriving_.front(), late);
  }
  for (SecureLink* const link : std::vector<SecureLink*>(connecting_)) {
    if (link->late_at_ <= now) link->end_soon(late);
  }
  return any;
}

bool SecureEndpoint::poll() {
  bool any = inner_->poll();
  any |= end_overdue();
  while (!ending_.empty()) {
    SecureLink* const link = ending_.back();
    ending_.pop_back();
    link->end_now();
    any = true;
  }
  return any;
}

Duration SecureEndpoint::sleep_max() const {
  const bool greets = !arriving_.empty() || !connecting_.empty();
  return greets ? std::min<Duration>(kCheckInterval, inner_->sleep_max()) : inner_->sleep_max();
}

}  // namespace stdchk::transport::secure
