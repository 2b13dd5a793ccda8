#pragma once

#include <cstdint>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/messages/messages.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// Reports which extent headers are in a part of `arena`. It examines every multiple of the
/// alignment, and so reads the whole part. No header is trusted to locate the next header.
///
/// Clients may write to the arena meanwhile: a header written at that moment
/// may or may not be reported.
/// Limits: at most limits::kListItemsMax headers and kReportBytesMax of the arena; the reply says
/// where it ended.
msg::ReportExtents::Reply report_extents(ByteSpan arena, const msg::ReportExtents& request);
inline constexpr std::uint64_t kReportBytesMax = 256 * limits::kMiB;

/// A Forgetter clears extent headers in an arena for the manager whose link is up. After a link is
/// lost, its requests are refused: the next manager may give the space to clients.
///
/// Threads: any thread may call forget(); all else belongs to one thread.
class Forgetter {
 public:
  explicit Forgetter(MutableByteSpan arena) : arena_(arena) {}
  Forgetter(const Forgetter&) = delete;
  Forgetter& operator=(const Forgetter&) = delete;

  /// The number of the present link, for forget().
  std::uint64_t link() const {
    const MutexLock lock(mutex_);
    return link_;
  }
  /// Notes that the link is lost. Waits for a request that is being executed.
  void lose_link();
  /// Clears those headers that still equal the reported ones. Fails with kStale, without doing
  /// anything, when that link is lost.
  Result<msg::ForgetExtents::Reply> forget(const msg::ForgetExtents& request, std::uint64_t link);

 private:
  const MutableByteSpan arena_;
  mutable Mutex mutex_;
  std::uint64_t link_ STDCHK_GUARDED_BY(mutex_) = 0;
};

}  // namespace stdchk::benefactor
