#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/values/types.h"

namespace stdchk::mount {

/// A RefusedOpens remembers the opens that were answered ESTALE: the kernel then looks the name up
/// again, and opens the file once more.
///
/// Threads: any.
/// Limits: kOpensMax threads and files; beyond that, it forgets all.
class RefusedOpens {
 public:
  static constexpr std::size_t kOpensMax = 4096;

  explicit RefusedOpens(Clock& clock) : clock_(clock) {}

  /// Returns true when the kernel must look the name up again. Returns false when this thread's
  /// last open was refused less than 2 s ago. The kernel asks no third time, so the file is then
  /// opened as it is. This happens to opens through a descriptor (/proc/PID/fd), and when the name
  /// keeps changing.
  bool refuse(std::int32_t thread, FileId file);
  /// The thread has opened a file.
  void opened(std::int32_t thread);
  /// Returns true, once, when a look-up that finds the file must ask the manager.
  bool take(FileId file);

 private:
  Clock& clock_;
  Mutex mutex_;
  /// The next look-up that finds one of these files asks the manager.
  std::set<FileId> refresh_ STDCHK_GUARDED_BY(mutex_);
  /// By thread, the time when its open was refused.
  std::unordered_map<std::int32_t, Time> refused_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
