#pragma once

#include <functional>
#include <string>

namespace stdchk::mount {

/// A Pulse tells the guard that this process is alive.
class Pulse {
 public:
  /// `fd` is the pipe to the guard; -1: there is no guard.
  explicit Pulse(int fd) : fd_(fd) {}
  /// To be called each second while the mount serves. The first call starts the watch.
  void beat() const { say('b'); }
  /// Says that this process is ending, so that silence does not count any more.
  void end() const { say('e'); }

 private:
  void say(char what) const;
  int fd_;
};

struct GuardOptions {
  std::string mountpoint;
  /// The longest silence of the serving process, in seconds. 0: there is no guard.
  unsigned silent_s_max = 0;
};

/// Runs `serve` in a child process and watches it. Starts another child when a signal ends the
/// child, and kills a child that is silent for too long. The death of a child closes /dev/fuse. The
/// kernel then fails all calls that wait for the mount, so no process sleeps uninterruptibly
/// because of it. The new child replaces the dead mount.
///
/// Ends the FUSE connection when a thread of the dead child cannot end, because it waits in the
/// kernel for one of those calls. Also starts another child when the kernel has ended the
/// connection and the mount stays.
///
/// Returns when the child exits by itself, or when this process gets SIGTERM, SIGINT or SIGHUP,
/// which it passes on. If this process is killed, the child gets SIGTERM and leaves no dead mount
/// behind. When signals end the child several times in a row, each time soon after its start,
/// guard() gives up and unmounts the dead mount.
///
/// Threads: none may run yet. The signals above must be blocked.
int guard(const GuardOptions& options, const std::function<int(const Pulse&)>& serve);

}  // namespace stdchk::mount
