#include "benefactor/memory/memory_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/base/log.h"

namespace stdchk::benefactor {
namespace {

/// 100 ms of waiting within 2 s. Unprivileged processes may use only multiples of 2 s (psi.rst).
constexpr std::string_view kStalls = "some 100000 2000000";

}  // namespace

/// A Trigger wakes the reactor when tasks of a scope begin to wait for memory. The kernel signals
/// at most once per window.
///
/// Owns: the descriptor of the kernel's trigger, and an epoll instance around it. PSI signals
/// EPOLLPRI, but the reactor waits for EPOLLIN.
class MemoryWatch::Trigger final : public EventSource {
 public:
  /// Returns null when the kernel has no PSI, or denies it to this process.
  static std::unique_ptr<Trigger> create(const std::string& path, std::function<void()> on_stall) {
    auto trigger = std::make_unique<Trigger>(std::move(on_stall));
    trigger->psi_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    trigger->epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (trigger->psi_ < 0 || trigger->epoll_ < 0) return nullptr;
    // Includes the terminating zero, as the kernel's own example does.
    const auto bytes = static_cast<ssize_t>(kStalls.size() + 1);
    if (::write(trigger->psi_, kStalls.data(), kStalls.size() + 1) != bytes) return nullptr;
    epoll_event event{};
    event.events = EPOLLPRI;
    // An ordinary file, as in a test, cannot be waited for.
    if (::epoll_ctl(trigger->epoll_, EPOLL_CTL_ADD, trigger->psi_, &event) != 0) return nullptr;
    return trigger;
  }

  explicit Trigger(std::function<void()> on_stall) : on_stall_(std::move(on_stall)) {}
  ~Trigger() override {
    if (epoll_ >= 0) ::close(epoll_);
    if (psi_ >= 0) ::close(psi_);
  }
  Trigger(const Trigger&) = delete;
  Trigger& operator=(const Trigger&) = delete;

  bool poll() override {
    epoll_event event{};
    if (::epoll_wait(epoll_, &event, 1, 0) != 1) return false;
    // A control group that is gone signals EPOLLERR for ever, and nothing else.
    if ((event.events & EPOLLERR) != 0) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, psi_, nullptr);
    on_stall_();
    return true;
  }
  int fd() const override { return epoll_; }
  bool may_sleep() override { return true; }

 private:
  std::function<void()> on_stall_;
  int psi_ = -1;
  int epoll_ = -1;
};

MemoryWatch::MemoryWatch(Reactor& reactor, const PressureLimits& limits, MachineFiles files,
                         OnPressure on_pressure)
    : reactor_(reactor),
      files_(std::move(files)),
      judge_(limits),
      on_pressure_(std::move(on_pressure)) {
  const std::vector<MemoryScope> scopes = read_memory_scopes(files_);
  for (const MemoryScope& scope : scopes) {
    if (!scope.stalled_us) continue;
    auto trigger = Trigger::create(scope.pressure_file, [this] { check_memory(); });
    if (!trigger) continue;
    reactor_.add(*trigger);
    triggers_.push_back(std::move(trigger));
  }
  if (std::ranges::none_of(scopes,
                           [](const auto& scope) { return scope.stalled_us.has_value(); })) {
    log::info(
        "this kernel does not tell how long tasks wait for memory (PSI); only the memory that "
        "is available is watched");
  }
  check_memory();
}

MemoryWatch::~MemoryWatch() {
  reactor_.cancel(timer_);
  for (const auto& trigger : triggers_) reactor_.remove(*trigger);
}

void MemoryWatch::check_memory() {
  reactor_.cancel(timer_);
  const Pressure pressure = judge_.judge(read_memory_scopes(files_), reactor_.clock().now());
  timer_ = reactor_.schedule_after(judge_.next_sample(), [this] { check_memory(); });
  if (pressure != Pressure::kNone && !on_pressure_(pressure, judge_.reason())) judge_.begin_again();
}

}  // namespace stdchk::benefactor
