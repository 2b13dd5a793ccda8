#include "transport/tcp/listener.h"

#include <netdb.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/socket_address.h"

namespace stdchk::transport::tcp {
namespace {

constexpr int kBacklog = 1024;
/// The number under which the Poller watches the listening socket.
constexpr std::uint64_t kNumber = 0;

/// The connection has ended before it was accepted, or has left its network's error (accept(2)).
bool affects_one_connection_only(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

Listener::~Listener() {
  if (socket_ >= 0) ::close(socket_);
}

Status Listener::resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string name = host.empty() ? "127.0.0.1" : host;
  if (::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return fail(Code::kInvalidArgument, "tcp.open: --listen is no address of this host");
  }
  std::memcpy(&host_, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return {};
}

Status Listener::open() {
  const int socket = ::socket(host_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return fail_errno("tcp.listen");
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&host_), address_bytes(host_)) != 0 ||
      ::listen(socket, kBacklog) != 0 || !poller_.add(socket, kNumber, EPOLLIN)) {
    const auto failure = fail_errno("tcp.listen");
    ::close(socket);
    return failure;
  }
  socket_ = socket;
  return {};
}

std::string Listener::address() const {
  if (socket_ < 0) return {};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return {};
  return address_text(kAddressPrefix, bound);
}

Listener::Accepted Listener::accept() {
  Accepted accepted;
  socklen_t length = sizeof accepted.peer;
  accepted.socket = ::accept4(socket_, reinterpret_cast<sockaddr*>(&accepted.peer), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (accepted.socket < 0) accepted.error = affects_one_connection_only(errno) ? 0 : errno;
  return accepted;
}

void Listener::pause(Time until) {
  poller_.change(socket_, kNumber, 0);
  paused_until_ = until;
}

void Listener::resume_at(Time now) {
  if (!is_paused() || now < paused_until_) return;
  poller_.change(socket_, kNumber, EPOLLIN);
  paused_until_ = {};
}

}  // namespace stdchk::transport::tcp
