#include "transport/tcp/clear_content.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/assert.h"
#include "transport/socket_address.h"
#include "transport/tcp/sockets.h"

namespace stdchk::transport::tcp {
namespace {

constexpr const char* kToken = "EXPORTER-stdchk content channel";
constexpr const char* kFromConnecting = "EXPORTER-stdchk content of who connects";
constexpr const char* kFromAccepting = "EXPORTER-stdchk content of who accepts";

std::unique_ptr<ContentChannel> make_channel(const TlsSession& tls, int socket, bool accepted) {
  const char* const out = accepted ? kFromAccepting : kFromConnecting;
  const char* const in = accepted ? kFromConnecting : kFromAccepting;
  return std::make_unique<ContentChannel>(socket, tls.derived(out), tls.derived(in));
}

}  // namespace

void ClearContent::agree(bool in_use) {
  in_use_ = in_use;
  if (!in_use) channel_.reset();
}

Status ClearContent::connect(const TlsSession& tls) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const int known = ::getpeername(tls.socket(), reinterpret_cast<sockaddr*>(&peer), &length);
  const int socket = ::socket(peer.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (known != 0 || socket < 0) {
    if (socket >= 0) ::close(socket);
    return fail(Code::kPeerLost, "tcp.content", errno);
  }
  set_up_socket(socket);
  channel_ = make_channel(tls, socket, false);
  connecting_ = true;
  const int result =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&peer), address_bytes(peer));
  if (result != 0 && errno != EINPROGRESS) return fail(Code::kPeerLost, "tcp.content", errno);
  watched_ = EPOLLOUT;
  STDCHK_ASSERT(poller_.add(socket, link_ | Poller::kChannelBit, watched_));
  return {};
}

Status ClearContent::finish_connecting(const TlsSession& tls) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(channel_->socket(), SOL_SOCKET, SO_ERROR, &error, &length);
  std::array<std::byte, ContentChannel::kGreetingBytes> greeting{ContentChannel::kFirstByte};
  std::ranges::copy(tls.derived(kToken).bytes, greeting.begin() + 1);
  if (error != 0 || ::send(channel_->socket(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
                        static_cast<ssize_t>(greeting.size())) {
    return fail(Code::kPeerLost, "tcp.content", error);
  }
  connecting_ = false;
  watch(0);
  return {};
}

void ClearContent::accept(const TlsSession& tls, int socket) {
  channel_ = make_channel(tls, socket, true);
  watched_ = EPOLLIN;  // for the arrival that had the socket
  watch(0);
}

bool ClearContent::is_token(const TlsSession& tls, ByteSpan token) {
  return equal(token, tls.derived(kToken).bytes);
}

void ClearContent::close() {
  if (channel_ != nullptr) channel_->close();
}

void ClearContent::watch(std::uint32_t events) {
  if (watched_ == events) return;
  watched_ = events;
  poller_.change(channel_->socket(), link_ | Poller::kChannelBit, events);
}

void ClearContent::on_readable() {
  if (incoming_.empty()) watch(watched_ & ~static_cast<std::uint32_t>(EPOLLIN));
}

ClearContent::Io ClearContent::send() {
  if (!channel_->is_sending()) channel_->begin_send(outgoing_.front().target.pieces);
  const Io io = channel_->send();
  if (io == Io::kLost) return io;
  const auto content = watched_ & static_cast<std::uint32_t>(EPOLLIN);
  watch(io == Io::kBlocked ? content | EPOLLOUT : content);
  return io;
}

bool ClearContent::expect(Frame frame) {
  if (incoming_.size() >= kIncomingMax) return false;
  incoming_.push_back(std::move(frame));
  return true;
}

bool ClearContent::expects_part_of(const FrameHeader& header) const {
  return std::ranges::any_of(incoming_, [&](const Frame& frame) {
    return frame.header.id == header.id && frame.header.type == header.type;
  });
}

ClearContent::Io ClearContent::receive() {
  if (!channel_->is_receiving()) channel_->begin_receive(incoming_.front().target.pieces);
  const Io io = channel_->receive();
  if (io == Io::kBlocked) watch(watched_ | EPOLLIN);
  return io;
}

ClearContent::Frame ClearContent::end_receive() {
  Frame frame = std::move(incoming_.front());
  incoming_.pop_front();
  return frame;
}

bool ClearContent::uses(const TcpRegion& region) const {
  const auto is_of = [&](const Frame& frame) { return frame.target.region == &region; };
  return std::ranges::any_of(incoming_, is_of) || std::ranges::any_of(outgoing_, is_of);
}

}  // namespace stdchk::transport::tcp
