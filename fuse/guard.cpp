#include "fuse/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/log.h"
#include "core/base/process_id.h"
#include "fuse/mountpoint.h"

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;
using Timer = std::chrono::steady_clock;

constexpr auto kSoon = 10s;           ///< an end within this time after the start counts as soon
constexpr unsigned kSoonEndsMax = 3;  ///< soon ends in a row, after which guard() gives up
constexpr int kTickMs = 1000;
constexpr unsigned kDeadTicksMax = 2;  ///< how long a killed process may take to end

sigset_t signals_of_guard() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  return signals;
}

/// A Ward is the child process that serves the mount, seen from the guard.
class Ward {
 public:
  Ward(pid_t pid, int pulse, int signals, const GuardOptions& options)
      : pid_(pid), pulse_(pulse), signals_(signals), options_(options) {}
  ~Ward() {
    if (pulse_ >= 0) ::close(pulse_);
  }
  Ward(const Ward&) = delete;
  Ward& operator=(const Ward&) = delete;

  /// Waits until the child has ended, and returns its status in the form of waitpid(2).
  int watch();
  bool was_end_requested() const { return end_requested_; }

 private:
  void read_messages();
  bool has_ended(int& status);
  void count_silence();
  void abort_connection_of_dead_child();

  const pid_t pid_;
  int pulse_;
  const int signals_;
  const GuardOptions& options_;
  /// Counts ticks, not seconds: if this process was stopped as well, the child still gets its full
  /// time.
  unsigned silent_ticks_ = 0;
  unsigned dead_ticks_ = 0;
  bool serves_ = false;
  bool end_requested_ = false;
};

int Ward::watch() {
  for (int status = 0;;) {
    std::array<pollfd, 2> ready{{{signals_, POLLIN, 0}, {pulse_, POLLIN, 0}}};
    const int count = ::poll(ready.data(), ready.size(), kTickMs);
    if (count == 0) {
      count_silence();
      abort_connection_of_dead_child();
    }
    if (count > 0 && ready[1].revents != 0) read_messages();
    if (count > 0 && ready[0].revents != 0 && has_ended(status)) return status;
  }
}

void Ward::read_messages() {
  std::array<char, 64> said{};
  const ssize_t length = ::read(pulse_, said.data(), said.size());
  if (length <= 0) {
    // The child has closed the pipe because it is ending. SIGCHLD follows.
    ::close(pulse_);
    pulse_ = -1;
    serves_ = false;
    return;
  }
  silent_ticks_ = 0;
  serves_ = said[static_cast<std::size_t>(length) - 1] == 'b';
}

bool Ward::has_ended(int& status) {
  signalfd_siginfo signal{};
  if (::read(signals_, &signal, sizeof(signal)) != sizeof(signal)) return false;
  if (signal.ssi_signo == SIGCHLD) return ::waitpid(pid_, &status, WNOHANG) == pid_;
  end_requested_ = true;
  ::kill(pid_, static_cast<int>(signal.ssi_signo));
  ::kill(pid_, SIGCONT);  // a stopped process handles the signal only after SIGCONT
  return false;
}

void Ward::count_silence() {
  if (!serves_ || ++silent_ticks_ < options_.silent_s_max) return;
  log::error("The process {} that serves the mount has been silent for {} s; it is killed.", pid_,
             options_.silent_s_max);
  ::kill(pid_, SIGKILL);
  serves_ = false;
}

/// Ends the connection of a child that is dead but does not end. A thread of the child may notify
/// the kernel of a changed name, and wait there unkillably for the directory's lock. The lock's
/// owner may wait for an answer of the child, which the kernel still believes alive.
void Ward::abort_connection_of_dead_child() {
  if (read_process_state(pid_).state != 'Z') return;
  if (++dead_ticks_ != kDeadTicksMax) return;
  log::error(
      "The process {} that served the mount is dead and does not end; its connection is ended.",
      pid_);
  abort_mount(options_.mountpoint);
}

/// Runs in the child. Ends with the guard, because the guard's death sends it SIGTERM.
int serve_as_ward(const std::function<int(const Pulse&)>& serve, int pulse, pid_t guard) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != guard) return EXIT_FAILURE;
  return serve(Pulse(pulse));
}

}  // namespace

void Pulse::say(char what) const {
  // Failure is harmless: a full pipe already has pulses for the guard to read.
  if (fd_ >= 0) [[maybe_unused]]
    const ssize_t written = ::write(fd_, &what, 1);
}

int guard(const GuardOptions& options, const std::function<int(const Pulse&)>& serve) {
  if (options.silent_s_max == 0) return serve(Pulse(-1));
  sigset_t before;
  const sigset_t mine = signals_of_guard();
  sigprocmask(SIG_BLOCK, &mine, &before);
  const int signals = ::signalfd(-1, &mine, SFD_CLOEXEC);
  const pid_t self = ::getpid();
  for (unsigned soon_ends = 0;;) {
    int pulse[2];
    const pid_t pid = signals >= 0 && ::pipe2(pulse, O_CLOEXEC | O_NONBLOCK) == 0 ? ::fork() : -1;
    if (pid < 0) {
      log::error("No process can be started for the mount: {}", std::strerror(errno));
      return EXIT_FAILURE;
    }
    if (pid == 0) {
      sigprocmask(SIG_SETMASK, &before, nullptr);
      ::close(signals);
      ::close(pulse[0]);
      return serve_as_ward(serve, pulse[1], self);
    }
    ::close(pulse[1]);
    ::prctl(PR_SET_NAME, "stdchk-guard");
    const auto began = Timer::now();
    Ward ward(pid, pulse[0], signals, options);
    const int status = ward.watch();
    const bool was_cut = status == 0 && !ward.was_end_requested() && is_dead(options.mountpoint);
    if (WIFEXITED(status) && !was_cut) {
      // Unmount the dead mount of an earlier child, if this child failed to replace it.
      unmount_dead(options.mountpoint);
      return WEXITSTATUS(status);
    }
    soon_ends = Timer::now() - began < kSoon ? soon_ends + 1 : 0;
    const bool ends = ward.was_end_requested() || soon_ends >= kSoonEndsMax;
    log::error("The process {} that served {} {}{}", pid, options.mountpoint,
               was_cut ? "was cut off by the kernel"
                       : fmt::format("was ended by signal {}", WTERMSIG(status)),
               ends ? "." : "; another process takes its place.");
    if (!ends) continue;
    unmount_dead(options.mountpoint);
    return EXIT_FAILURE;
  }
}

}  // namespace stdchk::mount
