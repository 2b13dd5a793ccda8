#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/log.h"
#include "transport/socket_address.h"
#include "transport/tcp/endpoint.h"

namespace stdchk::transport::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kPrefix = "tcp:";
constexpr int kBacklog = 1024;
constexpr int kAcceptedPerPoll = 32;
constexpr Duration kAcceptPause = 100ms;  ///< when no descriptors are left

/// The connection has ended before it was accepted, or has left its network's error (accept(2)).
bool is_of_one_connection(int error) {
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

std::string TcpEndpoint::address() const {
  if (listener_ < 0) return {};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return {};
  return address_text(kPrefix, bound);
}

Status TcpEndpoint::listen(AcceptHandler& handler) {
  const int socket = ::socket(host_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return fail_errno("tcp.listen");
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&host_), address_bytes(host_)) != 0 ||
      ::listen(socket, kBacklog) != 0 ||
      ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket, &event) != 0) {
    const auto failure = fail_errno("tcp.listen");
    ::close(socket);
    return failure;
  }
  listener_ = socket;
  accept_handler_ = &handler;
  return {};
}

void TcpEndpoint::accept_links() {
  for (int i = 0; i < kAcceptedPerPoll; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const int socket = ::accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &length,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
      take_arrival(socket, peer);
    } else if (errno == EAGAIN) {
      return;
    } else if (!is_of_one_connection(errno)) {
      return pause_accepting();
    }
  }
}

void TcpEndpoint::take_arrival(int socket, const sockaddr_storage& peer) {
  const std::uint64_t number = ++links_made_;
  if (const auto gone = arrivals_.admit(number, Arrivals::address_of(peer))) {
    accepted_.erase(*gone);
  }
  auto made =
      std::make_unique<TcpLink>(*this, number, true, clock_.now() + settings_.prove_deadline);
  TcpLink& link = *made;
  link.tls_ = std::make_unique<TlsSession>(*tls_, set_up_socket(socket));
  ++unopened_;
  accepted_.emplace(number, std::move(made));
  watch(link, EPOLLIN, true);
  prove(link);  // what it says first is often here by now
}

/// accept(2) goes on saying that a connection waits: a reactor that listens to it would spin.
void TcpEndpoint::pause_accepting() {
  const int error = errno;
  if (clock_.now() >= next_warning_) {
    refused({Code::kSystem, error, "tcp.accept"});
  }
  if (const auto oldest = arrivals_.take_oldest()) accepted_.erase(*oldest);
  watch_listener(false);
  accept_again_ = clock_.now() + kAcceptPause;
}

void TcpEndpoint::watch_listener(bool wanted) {
  epoll_event event{.events = wanted ? std::uint32_t{EPOLLIN} : 0U, .data = {.u64 = 0}};
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listener_, &event);
  accept_again_ = {};
}

}  // namespace stdchk::transport::tcp
