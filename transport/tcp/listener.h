#pragma once

#include <sys/socket.h>

#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/tcp/poller.h"

namespace stdchk::transport::tcp {

inline constexpr std::string_view kAddressPrefix = "tcp:";

/// A Listener is the listening socket of an endpoint.
///
/// It pauses while the process has no descriptors left. Otherwise epoll would report the waiting
/// connection at each poll, and the reactor would spin.
/// Owns: the socket, and with it connections that nobody has accepted. Threads: the endpoint's.
class Listener {
 public:
  /// A socket, or why there is none.
  struct Accepted {
    int socket = -1;
    int error = 0;  ///< errno; 0: that connection has ended, another one may wait
    sockaddr_storage peer{};
  };

  explicit Listener(Poller& poller) : poller_(poller) {}
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Only `host` may need a name server. Links are made by numeric addresses.
  Status resolve(const std::string& host, std::uint16_t port);
  Status open();
  /// "tcp:10.0.0.1:7471". Empty before open().
  std::string address() const;
  Accepted accept();

  void pause(Time until);
  bool is_paused() const { return paused_until_ != Time{}; }
  /// Listens again, if the pause is over.
  void resume_at(Time now);

 private:
  Poller& poller_;
  sockaddr_storage host_{};
  int socket_ = -1;
  Time paused_until_{};  ///< zero: it listens
};

}  // namespace stdchk::transport::tcp
