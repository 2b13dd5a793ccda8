#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/clock.h"
#include "metrics/histogram.h"

namespace stdchk::mount {

/// The kernel's requests, by the names that libfuse gives them.
enum class RequestKind : std::uint8_t {
  kLookup,
  kForget,
  kGetattr,
  kSetattr,
  kReadlink,
  kMknod,
  kMkdir,
  kUnlink,
  kRmdir,
  kSymlink,
  kRename,
  kLink,
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kFlush,
  kRelease,
  kFsync,
  kOpendir,
  kReaddir,
  kReaddirplus,
  kReleasedir,
  kFsyncdir,
  kStatfs,
  kSetxattr,
  kGetxattr,
  kListxattr,
  kRemovexattr,
  kFallocate
};
inline constexpr std::size_t kRequestKinds = static_cast<std::size_t>(RequestKind::kFallocate) + 1;
/// "lookup"
std::string_view name_of(RequestKind kind);

/// A RequestCounts counts what the kernel asks of a mount, and how that went.
///
/// Threads: any; relaxed additions, a few for each request.
class RequestCounts {
 public:
  static constexpr std::size_t kErrnoMax = 256;

  void count(RequestKind kind, Duration took) {
    Times& times = times_[static_cast<std::size_t>(kind)];
    times.count.fetch_add(1, std::memory_order_relaxed);
    times.ns.fetch_add(static_cast<std::uint64_t>(took.count()), std::memory_order_relaxed);
  }
  /// A request is answered with that errno.
  void count_error(int number) {
    const auto index = static_cast<std::size_t>(number);
    if (index < kErrnoMax) errors_[index].fetch_add(1, std::memory_order_relaxed);
  }
  /// Such a request has succeeded.
  void count_read(std::size_t bytes) { reads_.count(bytes); }
  void count_write(std::size_t bytes) { writes_.count(bytes); }

  std::uint64_t requests(RequestKind kind) const {
    return times_[static_cast<std::size_t>(kind)].count.load(std::memory_order_relaxed);
  }
  std::uint64_t request_ns(RequestKind kind) const {
    return times_[static_cast<std::size_t>(kind)].ns.load(std::memory_order_relaxed);
  }
  std::uint64_t errors(int number) const {
    return errors_[static_cast<std::size_t>(number)].load(std::memory_order_relaxed);
  }
  const metrics::Histogram& reads() const { return reads_; }
  const metrics::Histogram& writes() const { return writes_; }

 private:
  struct Times {
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> ns{0};
  };
  std::array<Times, kRequestKinds> times_;
  std::array<std::atomic<std::uint64_t>, kErrnoMax> errors_{};
  metrics::Histogram reads_{metrics::kSizeBounds};
  metrics::Histogram writes_{metrics::kSizeBounds};
};

}  // namespace stdchk::mount
