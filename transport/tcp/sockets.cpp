#include "transport/tcp/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace stdchk::transport::tcp {
namespace {

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

}  // namespace

int set_up_socket(int socket) {
  // Bytes that the kernel has not sent stay in the link, so that a message does not wait for
  // megabytes of content.
  constexpr int kUnsentBytes = 512 * 1024;
  constexpr int kIdleSeconds = 10;
  constexpr int kProbeSeconds = 5;
  constexpr int kProbes = 3;
  constexpr int kUnansweredMs = 30'000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  // A host that has lost its power sends nothing, not even the end of the connection.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
  return socket;
}

void set_wake_bytes(int socket, int bytes) { set_option(socket, SOL_SOCKET, SO_RCVLOWAT, bytes); }

}  // namespace stdchk::transport::tcp
