#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::mount {

/// A RefusedCalls remembers calls (open, readlink, getxattr) that were answered ESTALE: the kernel
/// then looks the names up again, and repeats the call once. Each look-up of the repeated call holds
/// the file that it finds. The call then succeeds, even if the pool has no such file by then.
///
/// Owns: the files that look-ups hold.
/// Threads: any. A thread here is a thread of the calling program.
/// Limits: kCallsMax threads and files; beyond that, the next refused call forgets the others. A
///   held file whose call never comes stays open for kRepeatMax, and then until the next look-up.
class RefusedCalls {
 public:
  static constexpr std::size_t kCallsMax = 4096;
  static constexpr Duration kRepeatMax = std::chrono::seconds(60);
  /// Files that the look-ups of one repeated call may hold: one for each symbolic link of a path.
  static constexpr int kHoldsMax = 64;

  /// The file that a look-up has found for the call that follows it.
  struct Held {
    FileId id;
    std::unique_ptr<client::File> file;  ///< an open reader of a regular file, or nullptr
    std::string target;                  ///< of a symbolic link
    /// Why the file cannot be opened. An error such as that of an early close is told only once, and
    /// the repeated call may need no open. So the next open returns the error.
    std::optional<Error> error;
  };

  enum class Call : std::uint8_t { kOpen, kReadlink, kXattr };

  explicit RefusedCalls(Clock& clock) : clock_(clock) {}

  /// Returns true when the kernel must look the names up again. Returns false when this thread's
  /// last call was refused less than 2 s ago, and no look-up came since. The kernel asks no third
  /// time, so the file is then opened as it is. This happens to opens through a descriptor
  /// (/proc/PID/fd).
  bool refuse(std::int32_t thread, FileId file, Call call);
  /// The thread has opened or made a file. Readlink and getxattr may be parts of an open.
  void end(std::int32_t thread);
  /// A getxattr or listxattr of the file begins. If it repeats a refused call, ends the repetition.
  /// Returns what the last look-up holds, to be kept until the call ends.
  std::optional<Held> end_xattr(std::int32_t thread, FileId file);
  /// Returns true, once, when a look-up that finds the file must ask the manager.
  bool take(FileId file);
  /// Returns true when the thread's look-up belongs to the repetition of a refused call. Forgets
  /// calls that were refused more than kRepeatMax ago.
  bool repeats(std::int32_t thread);
  /// Keeps what a look-up of the thread has found, in place of what its look-up before has found.
  void hold(std::int32_t thread, Held held);
  /// Returns what the thread's last look-up holds, if that is this file; once.
  std::optional<Held> held(std::int32_t thread, FileId file);

 private:
  struct Refused {
    Time when;
    Call call;
    int holds = 0;
    std::optional<Held> held;
  };

  /// Moves calls that were refused too long ago to `ended`. Is quick when no call was refused.
  void drop_old(Time now, std::vector<Refused>& ended) STDCHK_REQUIRES(mutex_);

  Clock& clock_;
  Mutex mutex_;
  /// The next look-up that finds one of these files asks the manager.
  std::set<FileId> refresh_ STDCHK_GUARDED_BY(mutex_);
  /// By thread, its refused call.
  std::unordered_map<std::int32_t, Refused> refused_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
