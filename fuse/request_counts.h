#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/clock.h"
#include "metrics/histogram.h"

namespace stdchk::mount {

/// A RequestKind is a kind of request of the kernel, named as in libfuse.
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
  kFallocate,
  kGetlk,
  kSetlk,
  kFlock,
  kLseek
};
inline constexpr std::size_t kRequestKinds = static_cast<std::size_t>(RequestKind::kLseek) + 1;
/// The name of a kind, such as "lookup".
std::string_view name_of(RequestKind kind);

/// A RequestCounts counts the kernel's requests to a mount, their times, sizes and errors.
///
/// Threads: any; each request costs a few relaxed additions.
class RequestCounts {
 public:
  static constexpr std::size_t kErrnoMax = 256;

  void count(RequestKind kind, Duration took) {
    Times& times = times_[static_cast<std::size_t>(kind)];
    times.count.fetch_add(1, std::memory_order_relaxed);
    times.ns.fetch_add(static_cast<std::uint64_t>(took.count()), std::memory_order_relaxed);
  }
  /// Counts a request that was answered with this errno.
  void count_error(int number) {
    const auto index = static_cast<std::size_t>(number);
    if (index < kErrnoMax) errors_[index].fetch_add(1, std::memory_order_relaxed);
  }
  /// Counts a successful read of `bytes`; count_write() counts a write.
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
