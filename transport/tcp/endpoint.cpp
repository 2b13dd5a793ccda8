#include "transport/tcp/endpoint.h"

#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>
#include <utility>

#include "core/base/assert.h"
#include "transport/message_limit.h"
#include "transport/secure/handshake.h"
#include "transport/socket_address.h"
#include "transport/tcp/sockets.h"

namespace stdchk::transport::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Duration kCheckInterval = 50ms;

// describe() puts the place before the sentence: here it says what to look at.
constexpr Error kWrongKey{Code::kRefused, 0,
                          "handshake: the secrets differ; --secret-file or STDCHK_SECRET_FILE "
                          "must name the file that `stdchk up` made for this pool"};

Error reason(TlsSession::Failure failure) {
  constexpr const char* kWhere = "tcp.handshake";
  switch (failure) {
    case TlsSession::Failure::kWrongKey:
      return kWrongKey;
    case TlsSession::Failure::kOther:
      return {Code::kMalformed, 0, kWhere};
    case TlsSession::Failure::kLost:
      break;
  }
  return {Code::kPeerLost, 0, kWhere};
}

}  // namespace

Result<std::unique_ptr<Endpoint>> open_tcp(Clock& clock, const std::string& host,
                                           std::uint16_t port,
                                           std::shared_ptr<const secure::Keyring> keyring,
                                           const Settings& settings) {
  STDCHK_ASSIGN(std::unique_ptr<Endpoint> endpoint,
                TcpEndpoint::create(clock, host, port, std::move(keyring), settings));
  return endpoint;
}

std::string library_version() {
  return std::string("OpenSSL ") + OpenSSL_version(OPENSSL_VERSION_STRING);
}

Result<std::unique_ptr<TcpEndpoint>> TcpEndpoint::create(
    Clock& clock, const std::string& host, std::uint16_t port,
    std::shared_ptr<const secure::Keyring> keyring, const Settings& settings) {
  if (keyring == nullptr) return fail(Code::kInvalidArgument, "tcp.open: a keyring is needed");
  std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(clock, settings));
  STDCHK_TRY(endpoint->listener_.resolve(host, port));
  STDCHK_TRY(endpoint->poller_.open());
  STDCHK_ASSIGN(endpoint->tls_, TlsContext::create(std::move(keyring), settings.records_max));
  return endpoint;
}

TcpEndpoint::TcpEndpoint(Clock& clock, const Settings& settings)
    : clock_(clock),
      settings_(settings),
      arrivals_(settings.arriving_max, settings.arriving_of_address_max) {
  capabilities_ = {.name = "tcp",
                   .write_proof = WriteProof::kDelivered,
                   .fence = FenceKind::kImmediate,
                   .one_sided = true,
                   .target_must_progress = true,
                   .same_host_only = false,
                   .message_bytes_max = kMessageBytesMax,
                   .rma_bytes_max = kTransferBytesMax,
                   .checks_writes = true};
}

TcpEndpoint::~TcpEndpoint() {
  accepted_.clear();
  STDCHK_ASSERT(links_.empty());
  STDCHK_ASSERT(regions_.empty());
}

Status TcpEndpoint::listen(AcceptHandler& handler) {
  STDCHK_TRY(listener_.open());
  accept_handler_ = &handler;
  return {};
}

Result<std::unique_ptr<MemoryRegion>> TcpEndpoint::register_memory(MutableByteSpan memory) {
  return std::unique_ptr<MemoryRegion>(std::make_unique<TcpRegion>(*this, memory));
}

void TcpEndpoint::remove(TcpRegion& region) {
  regions_.erase(&region);
  for (const auto& [number, link] : links_) link->forget(region);
}

Result<std::unique_ptr<Link>> TcpEndpoint::start_link(std::string_view address,
                                                      LinkHandler& handler, Duration deadline,
                                                      const secure::Ticket* ticket) {
  STDCHK_ASSIGN(const sockaddr_storage peer, parse_address(kAddressPrefix, address));
  const int socket = ::socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return fail_errno("tcp.connect");
  set_up_socket(socket);
  const int result =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&peer), address_bytes(peer));
  const int error = result == 0 ? 0 : errno;
  auto link = std::make_unique<TcpLink>(*this, ++links_made_, false, clock_.now() + deadline);
  link->set_handler(handler);
  link->state_ = TcpLink::State::kConnecting;
  link->tls_ = std::make_unique<TlsSession>(*tls_, socket, tls_->keyring().to(ticket));
  ++unopened_;
  if (error != 0 && error != EINPROGRESS) {
    end(*link, {Code::kPeerLost, error, "tcp.connect"});
  } else {
    STDCHK_ASSERT(poller_.add(socket, link->number_, EPOLLOUT));
  }
  return std::unique_ptr<Link>(std::move(link));
}

TcpLink* TcpEndpoint::find(std::uint64_t number) const {
  const auto found = links_.find(number);
  return found == links_.end() ? nullptr : found->second;
}

void TcpEndpoint::watch(const TcpLink& link, std::uint32_t events) {
  STDCHK_ASSERT(poller_.change(link.tls_->socket(), link.number_, events));
}

void TcpEndpoint::mark_ready(TcpLink& link) {
  if (link.ready_) return;
  link.ready_ = true;
  ready_.push_back(link.number_);
}

void TcpEndpoint::end(TcpLink& link, const Error& why) {
  if (link.state_ == TcpLink::State::kClosed) return;
  if (link.state_ != TcpLink::State::kOpen) --unopened_;
  link.state_ = TcpLink::State::kClosed;
  link.tls_->close();
  link.clear_.close();
  closing_.push_back({link.number_, why});
}

void TcpEndpoint::remove(TcpLink& link) {
  if (link.state_ != TcpLink::State::kClosed && link.state_ != TcpLink::State::kOpen) --unopened_;
  link.state_ = TcpLink::State::kClosed;
  if (link.tls_ != nullptr) link.tls_->close();
  link.clear_.close();
  links_.erase(link.number_);
  arrivals_.leave(link.number_);
}

bool TcpEndpoint::poll() {
  bool any = poll_sockets();
  any |= run_ready();
  any |= check_deadlines();
  any |= close_pending();
  return any;
}

bool TcpEndpoint::poll_sockets() {
  const std::span<const epoll_event> events = poller_.ready();
  bool accepts = false;
  for (const epoll_event& event : events) {
    if (event.data.u64 == 0) {
      accepts = true;
    } else if ((event.data.u64 & Poller::kChannelBit) != 0) {
      TcpLink* const link = find(event.data.u64 & ~Poller::kChannelBit);
      if (link != nullptr) on_channel_event(*link, event.events);
    } else if (TcpLink* const link = find(event.data.u64); link != nullptr) {
      on_event(*link, event.events);
    }
  }
  // Strangers come last, behind the connections that are on the way to their proof.
  if (accepts) accept_links();
  return !events.empty();
}

void TcpEndpoint::on_event(TcpLink& link, std::uint32_t events) {
  switch (link.state_) {
    case TcpLink::State::kConnecting:
      return on_connected(link);
    case TcpLink::State::kProving:
      return prove(link);
    case TcpLink::State::kGreeting:
    case TcpLink::State::kJoining:
    case TcpLink::State::kOpen:
      if ((events & EPOLLOUT) != 0) mark_ready(link);
      if ((events & ~EPOLLOUT) != 0) {
        link.more_to_read_ = true;
        mark_ready(link);
      }
      return;
    case TcpLink::State::kClosed:
      return;
  }
}

/// TCP is connected, or refused.
void TcpEndpoint::on_connected(TcpLink& link) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(link.tls_->socket(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return end(link, {Code::kPeerLost, error, "tcp.connect"});
  link.state_ = TcpLink::State::kProving;
  watch(link, EPOLLIN);
  prove(link);
}

void TcpEndpoint::prove(TcpLink& link) {
  if (link.accepted_ && trusts_network() && is_content_channel(link)) return;
  switch (link.tls_->prove()) {
    case TlsSession::Proof::kUnfinished:
      return;
    case TlsSession::Proof::kFailed:
      return end(link, reason(link.tls_->failure()));
    case TlsSession::Proof::kProven:
      break;
  }
  const secure::LinkName& name = link.tls_->name();
  link.peer_ = {link.accepted_ ? name.from : name.to, name.number};
  link.state_ = TcpLink::State::kGreeting;
  arrivals_.leave(link.number_);
  link.queue_.add_note({.type = FrameType::kHello,
                        .id = secure::kProtocolVersion,
                        .key = link.accepted_ && trusts_network() ? 1U : 0U});
  link.more_to_read_ = true;  // TLS may have read on already
  mark_ready(link);
}

void TcpEndpoint::on_greeted(TcpLink& link) { link.clear_.in_use() ? join(link) : open_link(link); }

void TcpEndpoint::open_link(TcpLink& link) {
  link.state_ = TcpLink::State::kOpen;
  --unopened_;
  if (!link.accepted_) return link.handler_->on_connected(link);
  const auto found = accepted_.find(link.number_);
  std::unique_ptr<TcpLink> taken = std::move(found->second);
  accepted_.erase(found);
  accept_handler_->on_accept(std::move(taken));
}

bool TcpEndpoint::run_ready() {
  running_.swap(ready_);
  for (const std::uint64_t number : running_) {
    TcpLink* link = find(number);
    if (link == nullptr) continue;
    link->ready_ = false;
    // A link without its content channel handles no frames yet.
    const bool joins = link->state_ == TcpLink::State::kJoining;
    if (!joins && std::exchange(link->more_to_read_, false)) {
      const bool more = link->state_ != TcpLink::State::kClosed && link->receive();
      link = find(number);  // a handler may have destroyed it
      if (link == nullptr) continue;
      link->more_to_read_ |= more;
    }
    const bool more_to_send = link->pump();
    if (more_to_send || (link->more_to_read_ && !joins)) mark_ready(*link);
  }
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

/// Ends links that were not made in time, and those whose transfers do not move.
bool TcpEndpoint::check_deadlines() {
  if (transfers_ == 0 && unopened_ == 0 && !listener_.is_paused()) return false;
  const Time now = clock_.now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  listener_.resume_at(now);
  std::vector<TcpLink*> late;
  for (const auto& [number, link] : links_) {
    if (link->has_overdue(now)) late.push_back(link);
  }
  for (TcpLink* const link : late) end(*link, {Code::kDeadline, 0, "tcp.deadline"});
  return !late.empty();
}

bool TcpEndpoint::close_pending() {
  const bool any = !closing_.empty();
  // By index: handlers may end other links.
  for (std::size_t i = 0; i < closing_.size(); ++i) {
    const Closing closing = closing_[i];
    TcpLink* const link = find(closing.link);
    if (link == nullptr) continue;
    if (const auto found = accepted_.find(closing.link); found != accepted_.end()) {
      warn_of_refused(closing.why);
      accepted_.erase(found);
    } else if (link->transfers_.finish_all(closing.why) && link->handler_ != nullptr) {
      link->handler_->on_closed(*link, closing.why);
    }
  }
  closing_.clear();
  return any;
}

Duration TcpEndpoint::sleep_max() const {
  const bool waits = transfers_ > 0 || unopened_ > 0 || listener_.is_paused();
  return waits ? kCheckInterval : Duration::max();
}

}  // namespace stdchk::transport::tcp
