#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>

#include "core/base/assert.h"
#include "core/runtime/reactor.h"

namespace stdchk::fork {

/// A Watches calls back when descriptors become readable or are closed by their peers. A reactor
/// sees a single source for all descriptors.
///
/// Owns: an epoll instance, not the watched descriptors. Threads: the reactor's.
class Watches final : public EventSource {
 public:
  Watches() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { STDCHK_ASSERT(epoll_ >= 0); }
  ~Watches() override { ::close(epoll_); }
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  void add(int fd, std::function<void()> ready) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    STDCHK_ASSERT(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0);
    calls_[fd] = std::move(ready);
  }
  /// Must be called before `fd` is closed. Does nothing when `fd` is not watched.
  void remove(int fd) {
    if (calls_.erase(fd) > 0) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  }

  bool poll() override {
    std::array<epoll_event, 64> events;
    const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < n; i++) {
      const auto found = calls_.find(events[static_cast<std::size_t>(i)].data.fd);
      if (found == calls_.end()) continue;
      const auto call = found->second;  // the call may remove itself
      call();
    }
    return n > 0;
  }
  int fd() const override { return epoll_; }
  bool may_sleep() override { return true; }

 private:
  int epoll_;
  std::map<int, std::function<void()>> calls_;
};

}  // namespace stdchk::fork
