#include <sys/epoll.h>

#include <cerrno>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/sockets.h"

// Accepted connections, until the peer has proven its key.
namespace stdchk::transport::tcp {
namespace {

using namespace std::chrono_literals;

constexpr int kAcceptedPerPoll = 32;
constexpr Duration kAcceptPause = 100ms;    ///< when no descriptors are left
constexpr Duration kWarningInterval = 10s;  ///< a stranger must not fill the log

}  // namespace

void TcpEndpoint::accept_links() {
  for (int i = 0; i < kAcceptedPerPoll; ++i) {
    const Listener::Accepted accepted = listener_.accept();
    if (accepted.socket >= 0) {
      take_arrival(accepted);
    } else if (accepted.error == EAGAIN) {
      return;
    } else if (accepted.error != 0) {
      return pause_accepting(accepted.error);
    }
  }
}

void TcpEndpoint::take_arrival(const Listener::Accepted& accepted) {
  const std::uint64_t number = ++links_made_;
  if (const auto gone = arrivals_.admit(number, Arrivals::address_of(accepted.peer))) {
    accepted_.erase(*gone);
  }
  auto made =
      std::make_unique<TcpLink>(*this, number, true, clock_.now() + settings_.prove_deadline);
  TcpLink& link = *made;
  link.tls_ = std::make_unique<TlsSession>(*tls_, set_up_socket(accepted.socket));
  ++unopened_;
  accepted_.emplace(number, std::move(made));
  STDCHK_ASSERT(poller_.add(accepted.socket, number, EPOLLIN));
  prove(link);  // the first bytes have often come by now
}

/// No descriptors are left: closes the oldest arrival, and accepts nothing for a while.
void TcpEndpoint::pause_accepting(int error) {
  warn_of_refused({Code::kSystem, error, "tcp.accept"});
  if (const auto oldest = arrivals_.take_oldest()) accepted_.erase(*oldest);
  listener_.pause(clock_.now() + kAcceptPause);
}

/// Warns of a connection that has not become a link.
void TcpEndpoint::warn_of_refused(const Error& why) {
  if (why.code == Code::kPeerLost || clock_.now() < next_warning_) return;
  log::warning("a connection to {} was refused: {}", address(), describe(why));
  next_warning_ = clock_.now() + kWarningInterval;
}

}  // namespace stdchk::transport::tcp
