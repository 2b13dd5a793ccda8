#include "transport/tcp/poller.h"

#include <unistd.h>

namespace stdchk::transport::tcp {

Poller::~Poller() {
  if (fd_ >= 0) ::close(fd_);
}

Status Poller::open() {
  fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd_ < 0) return fail_errno("tcp.epoll");
  return {};
}

bool Poller::add(int socket, std::uint64_t number, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = number}};
  return ::epoll_ctl(fd_, EPOLL_CTL_ADD, socket, &event) == 0;
}

bool Poller::change(int socket, std::uint64_t number, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = number}};
  return ::epoll_ctl(fd_, EPOLL_CTL_MOD, socket, &event) == 0;
}

std::span<const epoll_event> Poller::ready() {
  const int count = ::epoll_wait(fd_, events_.data(), kEventsMax, 0);
  return std::span(events_).first(count > 0 ? static_cast<std::size_t>(count) : 0);
}

}  // namespace stdchk::transport::tcp
