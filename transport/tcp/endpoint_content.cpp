#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/assert.h"
#include "transport/socket_address.h"
#include "transport/tcp/endpoint.h"

// The second connection of a link, for content in clear. The connecting end opens it.
namespace stdchk::transport::tcp {
namespace {

constexpr const char* kToken = "EXPORTER-stdchk content channel";
constexpr const char* kFromConnecting = "EXPORTER-stdchk content of who connects";
constexpr const char* kFromAccepting = "EXPORTER-stdchk content of who accepts";

/// Nobody is woken for less.
void set_wake_bytes(int socket, int bytes) {
  ::setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

std::unique_ptr<ContentChannel> make_channel(const TlsSession& tls, int socket, bool accepted) {
  const char* const out = accepted ? kFromAccepting : kFromConnecting;
  const char* const in = accepted ? kFromConnecting : kFromAccepting;
  return std::make_unique<ContentChannel>(socket, tls.derived(out), tls.derived(in));
}

}  // namespace

/// Content goes in clear. An accepted link waits for the channel, if it is not there yet.
void TcpEndpoint::join(TcpLink& link) {
  link.state_ = TcpLink::State::kJoining;
  if (!link.accepted_) return connect_channel(link);
  if (link.channel_ != nullptr) return open_link(link);
  watch(link, 0, false);  // what comes now is handled when the channel is there
}

void TcpEndpoint::connect_channel(TcpLink& link) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const int known = ::getpeername(link.tls_->socket(), reinterpret_cast<sockaddr*>(&peer), &length);
  const int socket = ::socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (known != 0 || socket < 0) {
    if (socket >= 0) ::close(socket);
    return end(link, {Code::kPeerLost, errno, "tcp.content"});
  }
  set_up_socket(socket);
  link.channel_ = make_channel(*link.tls_, socket, false);
  link.channel_connecting_ = true;
  const int result =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&peer), address_bytes(peer));
  if (result != 0 && errno != EINPROGRESS) {
    return end(link, {Code::kPeerLost, errno, "tcp.content"});
  }
  epoll_event event{.events = EPOLLOUT, .data = {.u64 = link.number_ | kChannelBit}};
  STDCHK_ASSERT(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket, &event) == 0);
}

/// Has the reactor woken when content comes, or when the socket has room.
void TcpEndpoint::watch_channel(TcpLink& link, bool content, bool room) {
  if (link.channel_content_ == content && link.channel_room_ == room) return;
  link.channel_content_ = content;
  link.channel_room_ = room;
  const std::uint32_t events = (content ? EPOLLIN : 0U) | (room ? EPOLLOUT : 0U);
  epoll_event event{.events = events, .data = {.u64 = link.number_ | kChannelBit}};
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, link.channel_->socket(), &event);
}

void TcpEndpoint::on_channel_event(TcpLink& link, std::uint32_t events) {
  if (link.state_ == TcpLink::State::kClosed || link.channel_ == nullptr) return;
  if (link.channel_connecting_) return on_channel_connected(link);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return end(link, {Code::kPeerLost, 0, "tcp.content"});
  }
  // Content that nobody has announced waits, and must not keep the reactor awake.
  if (link.clear_in_.empty()) watch_channel(link, false, link.channel_room_);
  if ((events & EPOLLIN) != 0) link.more_to_read_ = true;
  mark_ready(link);
}

void TcpEndpoint::on_channel_connected(TcpLink& link) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(link.channel_->socket(), SOL_SOCKET, SO_ERROR, &error, &length);
  std::array<std::byte, ContentChannel::kGreetingBytes> greeting{ContentChannel::kFirstByte};
  std::ranges::copy(link.tls_->derived(kToken).bytes, greeting.begin() + 1);
  if (error != 0 || ::send(link.channel_->socket(), greeting.data(), greeting.size(),
                           MSG_NOSIGNAL) != static_cast<ssize_t>(greeting.size())) {
    return end(link, {Code::kPeerLost, error, "tcp.content"});
  }
  link.channel_connecting_ = false;
  link.channel_room_ = true;
  watch_channel(link, false, false);
  link.more_to_read_ = true;
  mark_ready(link);
  open_link(link);
}

/// True: the connection is not for TLS, and all has been done about it.
bool TcpEndpoint::is_content_channel(TcpLink& arrival) {
  if (arrival.begun_) return false;
  if (!arrival.peeked_) set_wake_bytes(arrival.tls_->socket(), ContentChannel::kGreetingBytes);
  std::array<std::byte, ContentChannel::kGreetingBytes> greeting{};
  const ssize_t got = ::recv(arrival.tls_->socket(), greeting.data(), greeting.size(), MSG_PEEK);
  if (got < 0 && errno == EAGAIN) {
    arrival.peeked_ = true;
    return true;
  }
  if (got <= 0) {
    end(arrival, {Code::kPeerLost, 0, "tcp.arrival"});
    return true;
  }
  if (greeting[0] != ContentChannel::kFirstByte) {
    arrival.begun_ = true;
    set_wake_bytes(arrival.tls_->socket(), 1);
    return false;
  }
  if (got == static_cast<ssize_t>(greeting.size())) {
    attach(arrival);
  } else if (std::exchange(arrival.peeked_, true)) {
    // The socket wakes nobody for less than a greeting, unless no more will come.
    end(arrival, {Code::kMalformed, 0, "tcp.arrival"});
  }
  return true;
}

/// Gives the connection to the link whose token it has said.
void TcpEndpoint::attach(TcpLink& arrival) {
  std::array<std::byte, ContentChannel::kGreetingBytes> greeting{};
  TcpLink* owner = nullptr;
  if (::recv(arrival.tls_->socket(), greeting.data(), greeting.size(), 0) ==
      static_cast<ssize_t>(greeting.size())) {
    for (const auto& [number, link] : accepted_) {
      const bool waits = link->channel_ == nullptr && (link->state_ == TcpLink::State::kGreeting ||
                                                       link->state_ == TcpLink::State::kJoining);
      const ByteSpan token = ByteSpan(greeting).subspan(1);
      if (waits && equal(token, link->tls_->derived(kToken).bytes)) owner = link.get();
    }
  }
  if (owner == nullptr) return end(arrival, {Code::kRefused, 0, "tcp.content"});
  const int socket = arrival.tls_->release();
  set_wake_bytes(socket, 1);
  owner->channel_ = make_channel(*owner->tls_, socket, true);
  end(arrival, {Code::kPeerLost, 0, "tcp.joined"});
  owner->channel_room_ = true;
  watch_channel(*owner, false, false);
  if (owner->state_ != TcpLink::State::kJoining) return;
  watch(*owner, EPOLLIN, false);
  owner->more_to_read_ = true;
  mark_ready(*owner);
  open_link(*owner);
}

}  // namespace stdchk::transport::tcp
