#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "transport/tcp/endpoint.h"
#include "transport/tcp/sockets.h"

// The second connection of a link, for content in clear. The connecting end opens it.
namespace stdchk::transport::tcp {

/// Content goes in clear. An accepted link waits until the peer has opened the channel.
void TcpEndpoint::join(TcpLink& link) {
  link.state_ = TcpLink::State::kJoining;
  if (!link.accepted_) {
    if (const Status status = link.clear_.connect(*link.tls_); !status) end(link, status.error());
    return;
  }
  if (link.clear_.has_channel()) return open_link(link);
  watch(link, 0);  // bytes that come now are handled when the channel exists
}

/// The channel of a joining link is ready.
void TcpEndpoint::joined(TcpLink& link) {
  link.more_to_read_ = true;
  mark_ready(link);
  open_link(link);
}

void TcpEndpoint::on_channel_event(TcpLink& link, std::uint32_t events) {
  if (link.state_ == TcpLink::State::kClosed || !link.clear_.has_channel()) return;
  if (link.clear_.is_connecting()) {
    const Status status = link.clear_.finish_connecting(*link.tls_);
    return status ? joined(link) : end(link, status.error());
  }
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return end(link, {Code::kPeerLost, 0, "tcp.content"});
  }
  link.clear_.on_readable();
  if ((events & EPOLLIN) != 0) link.more_to_read_ = true;
  mark_ready(link);
}

/// Returns true when the arrival is a content channel, or when its first bytes are still
/// incomplete: the caller then does nothing.
bool TcpEndpoint::is_content_channel(TcpLink& arrival) {
  if (arrival.first_bytes_ == TcpLink::FirstBytes::kTls) return false;
  const bool is_first = arrival.first_bytes_ == TcpLink::FirstBytes::kNotRead;
  if (is_first) set_wake_bytes(arrival.tls_->socket(), ContentChannel::kGreetingBytes);
  std::array<std::byte, ContentChannel::kGreetingBytes> greeting{};
  const ssize_t got = ::recv(arrival.tls_->socket(), greeting.data(), greeting.size(), MSG_PEEK);
  if (got < 0 && errno == EAGAIN) {
    arrival.first_bytes_ = TcpLink::FirstBytes::kIncomplete;
    return true;
  }
  if (got <= 0) {
    end(arrival, {Code::kPeerLost, 0, "tcp.arrival"});
    return true;
  }
  if (greeting[0] != ContentChannel::kFirstByte) {
    arrival.first_bytes_ = TcpLink::FirstBytes::kTls;
    set_wake_bytes(arrival.tls_->socket(), 1);
    return false;
  }
  if (got == static_cast<ssize_t>(greeting.size())) {
    attach(arrival);
  } else if (is_first) {
    arrival.first_bytes_ = TcpLink::FirstBytes::kIncomplete;
  } else {
    // The socket reports no event for less than a greeting, unless the peer has closed it.
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
      const bool waits =
          !link->clear_.has_channel() &&
          (link->state_ == TcpLink::State::kGreeting || link->state_ == TcpLink::State::kJoining);
      const ByteSpan token = ByteSpan(greeting).subspan(1);
      if (waits && ClearContent::is_token(*link->tls_, token)) owner = link.get();
    }
  }
  if (owner == nullptr) return end(arrival, {Code::kRefused, 0, "tcp.content"});
  const int socket = arrival.tls_->release();
  set_wake_bytes(socket, 1);
  owner->clear_.accept(*owner->tls_, socket);
  end(arrival, {Code::kPeerLost, 0, "tcp.joined"});
  if (owner->state_ != TcpLink::State::kJoining) return;
  watch(*owner, EPOLLIN);
  joined(*owner);
}

}  // namespace stdchk::transport::tcp
