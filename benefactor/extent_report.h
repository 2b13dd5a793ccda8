#pragma once

#include <cstdint>
#include <mutex>

#include "core/limits.h"
#include "core/messages/messages.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::benefactor {

/// Which extent headers are in a part of `arena`. Every step of the alignment is looked at, so it
/// reads all of the part; what lies behind a header is not trusted to tell where the next one is.
///
/// Clients may write to the arena meanwhile: a header that they write at that moment is reported or
/// not. Limits: limits::kListItemsMax headers, kReportBytesMax of the arena; with more the reply
/// ends earlier.
msg::ReportExtents::Reply report_extents(ByteSpan arena, const msg::ReportExtents& request);
inline constexpr std::uint64_t kReportBytesMax = 256 * limits::kMiB;

/// A Forgetter clears extent headers in an arena for the manager whose link is up. A request of a
/// link that is lost is not begun any more, because the next manager, or the same one, gives the
/// space to others.
///
/// Threads: forget() on any, the rest on one.
class Forgetter {
 public:
  explicit Forgetter(MutableByteSpan arena) : arena_(arena) {}
  Forgetter(const Forgetter&) = delete;
  Forgetter& operator=(const Forgetter&) = delete;

  /// Number of the link, for forget().
  std::uint64_t link() const { return link_; }
  /// The link is lost. Waits for the request that is being done.
  void lose_link();
  /// Clears those headers that are still what was reported. kStale: that link is lost, and nothing
  /// was done.
  Result<msg::ForgetExtents::Reply> forget(const msg::ForgetExtents& request, std::uint64_t link);

 private:
  const MutableByteSpan arena_;
  std::mutex mutex_;
  std::uint64_t link_ = 0;  ///< is changed under the mutex
};

}  // namespace stdchk::benefactor
