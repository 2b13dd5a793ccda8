#include "transport/tcp/endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "transport/message_limit.h"
#include "transport/secure/handshake.h"
#include "transport/socket_address.h"

namespace stdchk::transport::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kPrefix = "tcp:";
constexpr Duration kCheckInterval = 50ms;
constexpr Duration kWarningInterval = 10s;  ///< a stranger must not fill the log
constexpr int kEventsPerPoll = 64;

// describe() puts the place before the sentence: here it says what to look at.
constexpr Error kWrongKey{Code::kRefused, 0,
                          "handshake: the secrets differ; --secret-file or STDCHK_SECRET_FILE "
                          "must name the file that `stdchk up` made for this pool"};

/// Never a name server's delay when links are made: only an endpoint's own host may be a name.
Result<sockaddr_storage> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string name = host.empty() ? "127.0.0.1" : host;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return fail(Code::kInvalidArgument, "tcp.open: --listen is no address of this host");
  }
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

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

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

}  // namespace

int set_up_socket(int socket) {
  // What is not sent yet is in our hands, so that a message does not wait for megabytes.
  constexpr int kUnsentBytes = 512 * 1024;
  constexpr int kIdleSeconds = 10;
  constexpr int kProbeSeconds = 5;
  constexpr int kProbes = 3;
  constexpr int kUnansweredMs = 30'000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  // A host that has lost its power says nothing.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
  return socket;
}

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
  std::unique_ptr<TcpEndpoint> endpoint(new TcpEndpoint(clock, std::move(keyring), settings));
  STDCHK_ASSIGN(endpoint->host_, resolve(host, port));
  STDCHK_TRY(endpoint->open());
  return endpoint;
}

TcpEndpoint::TcpEndpoint(Clock& clock, std::shared_ptr<const secure::Keyring> keyring,
                         const Settings& settings)
    : clock_(clock),
      keyring_(std::move(keyring)),
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

Status TcpEndpoint::open() {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return fail_errno("tcp.epoll");
  STDCHK_ASSIGN(tls_, TlsContext::create(keyring_, settings_.records_max));
  return {};
}

TcpEndpoint::~TcpEndpoint() {
  accepted_.clear();
  STDCHK_ASSERT(links_.empty());
  STDCHK_ASSERT(regions_.empty());
  if (listener_ >= 0) ::close(listener_);
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
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
  STDCHK_ASSIGN(const sockaddr_storage peer, parse_address(kPrefix, address));
  const int socket = ::socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return fail_errno("tcp.connect");
  set_up_socket(socket);
  const int result =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&peer), address_bytes(peer));
  const int error = result == 0 ? 0 : errno;
  auto link = std::make_unique<TcpLink>(*this, ++links_made_, false, clock_.now() + deadline);
  link->set_handler(handler);
  link->state_ = TcpLink::State::kConnecting;
  link->tls_ = std::make_unique<TlsSession>(*tls_, socket, keyring_->to(ticket));
  ++unopened_;
  if (error != 0 && error != EINPROGRESS) {
    end(*link, {Code::kPeerLost, error, "tcp.connect"});
  } else {
    watch(*link, EPOLLOUT, true);
  }
  return std::unique_ptr<Link>(std::move(link));
}

TcpLink* TcpEndpoint::find(std::uint64_t number) const {
  const auto found = links_.find(number);
  return found == links_.end() ? nullptr : found->second;
}

void TcpEndpoint::watch(const TcpLink& link, std::uint32_t events, bool is_new) {
  epoll_event event{.events = events, .data = {.u64 = link.number_}};
  const int operation = is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  STDCHK_ASSERT(::epoll_ctl(epoll_fd_, operation, link.tls_->socket(), &event) == 0);
}

void TcpEndpoint::watch_room(TcpLink& link, bool wanted) {
  if (link.waits_for_room_ == wanted) return;
  link.waits_for_room_ = wanted;
  watch(link, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, false);
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
  if (link.channel_ != nullptr) link.channel_->close();
  closing_.push_back({link.number_, why});
}

void TcpEndpoint::remove(TcpLink& link) {
  if (link.state_ != TcpLink::State::kClosed && link.state_ != TcpLink::State::kOpen) --unopened_;
  link.state_ = TcpLink::State::kClosed;
  if (link.tls_ != nullptr) link.tls_->close();
  if (link.channel_ != nullptr) link.channel_->close();
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
  std::array<epoll_event, kEventsPerPoll> events;
  const int count = ::epoll_wait(epoll_fd_, events.data(), kEventsPerPoll, 0);
  bool accepts = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == 0) {
      accepts = true;
    } else if ((event.data.u64 & kChannelBit) != 0) {
      TcpLink* const link = find(event.data.u64 & ~kChannelBit);
      if (link != nullptr) on_channel_event(*link, event.events);
    } else if (TcpLink* const link = find(event.data.u64); link != nullptr) {
      on_event(*link, event.events);
    }
  }
  // Last: who is on the way to its proof comes before one more who may be a stranger.
  if (accepts) accept_links();
  return count > 0;
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
  watch(link, EPOLLIN, false);
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
  link.notes_.push_back({.type = FrameType::kHello,
                         .id = secure::kProtocolVersion,
                         .key = link.accepted_ && trusts_network() ? 1U : 0U});
  link.more_to_read_ = true;  // TLS may have read on already
  mark_ready(link);
}

void TcpEndpoint::on_greeted(TcpLink& link) {
  if (link.in_clear_) return join(link);
  link.channel_.reset();
  open_link(link);
}

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
    // Before its content channel is there, nothing is handled of what a link has said.
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
  if (transfers_ == 0 && unopened_ == 0 && accept_again_ == Time{}) return false;
  const Time now = clock_.now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  if (accept_again_ != Time{} && now >= accept_again_) watch_listener(true);
  std::vector<TcpLink*> late;
  for (const auto& [number, link] : links_) {
    if (link->any_late(now)) late.push_back(link);
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
      refused(closing.why);
      accepted_.erase(found);
    } else if (link->finish_all(closing.why) && link->handler_ != nullptr) {
      link->handler_->on_closed(*link, closing.why);
    }
  }
  closing_.clear();
  return any;
}

/// Of a connection that has not become a link.
void TcpEndpoint::refused(const Error& why) {
  if (why.code == Code::kPeerLost || clock_.now() < next_warning_) return;
  log::warning("a connection to {} was refused: {}", address(), describe(why));
  next_warning_ = clock_.now() + kWarningInterval;
}

Duration TcpEndpoint::sleep_max() const {
  const bool waits = transfers_ > 0 || unopened_ > 0 || accept_again_ != Time{};
  return waits ? kCheckInterval : Duration::max();
}

}  // namespace stdchk::transport::tcp
