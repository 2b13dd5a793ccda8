#include "transport/ofi/wakes.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/ofi/fabric.h"

namespace stdchk::transport::ofi {
namespace {

/// Wakes by an empty event queue before it is polled at intervals.
constexpr unsigned kIdleWakesMax = 16;
constexpr Duration kByTimeFor = std::chrono::seconds(1);

}  // namespace

Wakes::~Wakes() {
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

Status Wakes::open(fid_eq& events) {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return fail_errno("ofi.open epoll");
  events_ = &events.fid;
  STDCHK_ASSIGN(events_fd_, add(events.fid));
  return {};
}

Result<int> Wakes::add(fid& queue) {
  int wait_fd = -1;
  const int result = fi_control(&queue, FI_GETWAIT, &wait_fd);
  if (result != 0) return fail_fabric("ofi.open FI_GETWAIT", result);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = &queue}};
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wait_fd, &event) != 0) {
    return fail_errno("ofi.open epoll");
  }
  return wait_fd;
}

void Wakes::check_events(Time now) {
  pollfd readable{events_fd_, POLLIN, 0};
  const bool before = by_time_;
  if (by_time_ && now >= woken_from_) {
    by_time_ = false;
    idle_wakes_ = 0;
  } else if (!by_time_ && ::poll(&readable, 1, 0) == 1 && ++idle_wakes_ >= kIdleWakesMax) {
    by_time_ = true;
    woken_from_ = now + kByTimeFor;
  }
  if (by_time_ == before) return;
  epoll_event event{.events = by_time_ ? 0U : std::uint32_t{EPOLLIN}, .data = {.ptr = events_}};
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, events_fd_, &event);
}

}  // namespace stdchk::transport::ofi
