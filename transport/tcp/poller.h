#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "core/base/result.h"

namespace stdchk::transport::tcp {

/// A Poller tells which sockets of an endpoint are ready (epoll(7), level-triggered).
///
/// Each socket is watched under a number: 0 is the listening socket, other numbers are links.
/// Owns: its descriptor, not the sockets. A closed socket leaves by itself.
/// Threads: the endpoint's.
class Poller {
 public:
  /// Set in the number of a link: the socket is the link's content channel.
  static constexpr std::uint64_t kChannelBit = std::uint64_t{1} << 63U;

  Poller() = default;
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  Status open();
  /// Readable when any watched socket is ready.
  int fd() const { return fd_; }

  /// Begins to watch a socket for `events` (EPOLLIN, EPOLLOUT). Returns false when the kernel
  /// refuses, and sets errno.
  bool add(int socket, std::uint64_t number, std::uint32_t events);
  /// Replaces number and events of a watched socket. Returns false when it is not watched.
  bool change(int socket, std::uint64_t number, std::uint32_t events);

  /// Returns ready sockets without waiting. The result is valid until the next call.
  std::span<const epoll_event> ready();

 private:
  static constexpr int kEventsMax = 64;

  int fd_ = -1;
  std::array<epoll_event, kEventsMax> events_{};
};

}  // namespace stdchk::transport::tcp
