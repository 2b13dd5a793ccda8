#include "core/runtime/reactor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"

namespace stdchk {

Reactor::Reactor(Clock& clock) : clock_(clock) {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  STDCHK_ASSERT(epoll_fd_ >= 0 && wake_fd_ >= 0);
  epoll_event event{};
  event.events = EPOLLIN;
  STDCHK_ASSERT(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) == 0);
}

Reactor::~Reactor() {
  ::close(wake_fd_);
  ::close(epoll_fd_);
}

void Reactor::add(EventSource& source) {
  sources_.push_back(&source);
  if (source.fd() >= 0) {
    epoll_event event{};
    event.events = EPOLLIN;
    STDCHK_ASSERT(::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, source.fd(), &event) == 0);
  }
}

void Reactor::remove(EventSource& source) {
  std::erase(sources_, &source);
  // A descriptor that the source has closed has left the epoll set by itself.
  if (source.fd() >= 0) ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, source.fd(), nullptr);
}

TimerId Reactor::schedule_at(Time at, std::function<void()> call) {
  const TimerId id{at, ++timers_made_};
  timers_.emplace(id, std::move(call));
  return id;
}

TimerId Reactor::schedule_after(Duration delay, std::function<void()> call) {
  return schedule_at(clock_.now() + delay, std::move(call));
}

void Reactor::cancel(TimerId timer) {
  if (timer) timers_.erase(timer);
}

Time Reactor::next_timer() const {
  return timers_.empty() ? Time::max() : timers_.begin()->first.at;
}

Status Reactor::post(std::function<void()> call) {
  {
    const MutexLock lock(posts_mutex_);
    if (posts_.size() >= limits::kReactorPostsMax) return fail(Code::kBusy, "reactor.post");
    posts_.push_back(std::move(call));
  }
  // The reactor sets asleep_ before its last check of the posts. So either it sees this post, or
  // this thread sees asleep_.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_relaxed)) wake();
  return {};
}

void Reactor::wake() {
  const std::uint64_t one = 1;
  // A full counter means that a wake-up is pending already.
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof(one));
}

void Reactor::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  wake();
}

bool Reactor::run_posts() {
  {
    const MutexLock lock(posts_mutex_);
    posts_running_.swap(posts_);
  }
  const bool any = !posts_running_.empty();
  for (auto& call : posts_running_) call();
  posts_running_.clear();
  return any;
}

bool Reactor::run_timers() {
  bool any = false;
  const Time now = clock_.now();
  // Timers scheduled by these calls wait for the next turn: otherwise a zero
  // delay would loop for ever.
  const std::uint64_t newest = timers_made_;
  for (auto timer = timers_.begin(); timer != timers_.end() && timer->first.at <= now;) {
    if (timer->first.sequence > newest) {
      ++timer;
      continue;
    }
    auto node = timers_.extract(timer);
    node.mapped()();
    any = true;
    timer = timers_.begin();
  }
  return any;
}

bool Reactor::run_once(Duration wait_max) {
  bool any = false;
  // By index: a source may add another source while it runs.
  for (std::size_t i = 0; i < sources_.size(); ++i) any |= sources_[i]->poll();
  any |= run_posts();
  any |= run_timers();
  if (!any && wait_max > Duration::zero() && !stopped()) sleep(wait_max);
  return any;
}

void Reactor::sleep(Duration wait_max) {
  asleep_.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool may_sleep = true;
  {
    const MutexLock lock(posts_mutex_);
    may_sleep = posts_.empty();
  }
  for (EventSource* source : sources_) {
    if (!may_sleep) break;
    may_sleep = source->may_sleep();
    wait_max = std::min(wait_max, source->sleep_max());
  }
  if (may_sleep && wait_max > Duration::zero()) {
    if (next_timer() != Time::max()) wait_max = std::min(wait_max, next_timer() - clock_.now());
    wait_max = std::clamp(wait_max, Duration::zero(), Duration(std::chrono::hours(1)));
    const timespec wait{static_cast<time_t>(wait_max.count() / 1000000000),
                        static_cast<long>(wait_max.count() % 1000000000)};
    epoll_event events[8];
    ::epoll_pwait2(epoll_fd_, events, 8, &wait, nullptr);
  }
  asleep_.store(false, std::memory_order_relaxed);
  std::uint64_t ignored;
  [[maybe_unused]] const auto drained = ::read(wake_fd_, &ignored, sizeof(ignored));
}

void Reactor::run() {
  while (!stopped()) run_once(std::chrono::seconds(1));
}

}  // namespace stdchk
