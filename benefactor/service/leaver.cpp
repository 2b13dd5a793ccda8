#include "benefactor/service/leaver.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "core/base/log.h"
#include "core/runtime/daemon.h"

namespace stdchk::benefactor {

LeaveTurn::~LeaveTurn() {
  if (fd_ >= 0) ::close(fd_);
}

bool LeaveTurn::take() {
  if (fd_ < 0) fd_ = ::open(file_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  return fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool Leaver::on_pressure(Pressure pressure, const std::string& why) {
  if (handing_over_) {
    if (pressure == Pressure::kCritical && pressure_ != Pressure::kCritical) {
      log::warning("{}: there are {} s left for the hand-over", why, kCriticalTime.count());
      pressure_ = pressure;
      end_after(kCriticalTime);
    }
    return true;
  }
  if (must_leave()) return true;
  if (!may_leave(pressure)) return false;
  log::warning("leaves, because {}", why);
  pressure_ = pressure;
  reactor_.stop();
  return true;
}

bool Leaver::may_leave(Pressure pressure) {
  const bool critical = pressure == Pressure::kCritical;
  // Without a manager the stored data would be lost. A benefactor that no manager has ever known
  // stores none.
  if (!service_.registered() && service_.id() && !critical) return false;
  if (turn_.take()) return true;
  const Time now = reactor_.clock().now();
  if (!waits_since_) {
    log::info("memory is short; waits until another benefactor of this host has left");
    waits_since_ = now;
  }
  return now - *waits_since_ >= (critical ? kCriticalTime : leave_time_);
}

void Leaver::end_after(Duration time) {
  const Time at = reactor_.clock().now() + time;
  if (end_ && end_.at <= at) return;
  reactor_.cancel(end_);
  end_ = reactor_.schedule_at(at, [this] {
    ended_ = true;
    reactor_.stop();
  });
}

void Leaver::hand_over() {
  const bool critical = pressure_ == Pressure::kCritical;
  const Duration time = critical ? std::min<Duration>(leave_time_, kCriticalTime) : leave_time_;
  if (time == Duration::zero()) return;
  handing_over_ = true;
  bool is_terminating = ended_by() == SIGTERM;
  reactor_.resume();
  end_after(time);
  service_.leave([this](bool) {
    done_ = ended_ = true;
    reactor_.stop();
  });
  reactor_.run();
  while (!ended_ && !is_terminating && ended_by() == SIGTERM) {
    is_terminating = true;
    reactor_.resume();
    reactor_.run();
  }
  reactor_.cancel(end_);
  if (!done_) log::warning("ends before all that only it has was copied elsewhere");
}

}  // namespace stdchk::benefactor
