#pragma once

#include <functional>
#include <string>

namespace stdchk::mount {

/// A Pulse tells the Guard of this process that it is alive.
class Pulse {
 public:
  /// Without a guard, -1.
  explicit Pulse(int fd) : fd_(fd) {}
  /// Each second, once the mount serves: from the first one on silence is counted.
  void beat() const { say('b'); }
  /// It ends: silence means nothing any more.
  void end() const { say('e'); }

 private:
  void say(char what) const;
  int fd_;
};

struct GuardOptions {
  std::string mountpoint;
  /// So long may a process that serves the mount be silent. 0: there is no guard.
  unsigned silent_s_max = 0;
};

/// Runs `serve` in a child process, and once more when that was killed, or was silent for too long
/// and is killed here. Its death closes /dev/fuse: the kernel ends all that waits for the mount
/// with an error, so nothing sleeps uninterruptibly because of a stopped process. Where a thread of
/// it cannot die, because the kernel has it wait for one of those calls, the connection is ended
/// here. Likewise when the kernel, or somebody by it, has ended the connection and the mount stays.
/// The new one takes the place of the dead mount. Ends as the child does when it ends by
/// itself, or because this process was told to (SIGTERM, SIGINT, SIGHUP are passed on). When this
/// process is killed the child ends as by SIGTERM: no dead mount stays behind.
///
/// A process that ends by a signal again and again, each time soon, is not started any more, and
/// its dead mount is taken away.
///
/// Threads: none may run yet. The signals above must be blocked.
int guard(const GuardOptions& options, const std::function<int(const Pulse&)>& serve);

}  // namespace stdchk::mount
