#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

struct fuse_session;

namespace stdchk::mount {

/// An InitExchange takes capabilities that the kernel offers and libfuse 3.14 has no names for, by
/// setting their bits in the answer to FUSE_INIT as it passes by:
/// - FUSE_HANDLE_KILLPRIV_V2: without it the kernel asks for security.capability before each write
///   through its cache (ten times slower at 4 KiB). In return the mount takes the set-id bits away.
/// - FUSE_DIRECT_IO_ALLOW_MMAP: files opened around the page cache can be mapped shared all the
/// same.
///
/// Threads: the exchange happens on one; allows_mmap() any, after it.
/// Not: needed. Where the kernel offers less, less is taken.
class InitExchange {
 public:
  /// Makes a mounted `session` talk to the kernel through the exchange that `find` gives for the
  /// session's user data. False: it could not, and nothing was changed.
  using Find = InitExchange& (*)(void* user);
  static bool install(fuse_session* session, Find find);

  /// Bytes from the kernel, and bytes to it, are shown to these before they go on.
  void received(const std::byte* bytes, std::size_t size);
  /// `header` is a reply's header, `body` what follows it; true: `patched` goes instead of the
  /// body.
  bool answering(const std::byte* header, const std::byte* body, std::size_t body_size,
                 std::byte* patched);

  /// Whether the request that this thread has received last takes set-ID bits away: its caller has
  /// no CAP_FSETID (FUSE_WRITE_KILL_SUIDGID and its like, linux/fuse.h). Nothing: the kernel does
  /// not say.
  std::optional<bool> kills_set_id() const;

  bool over() const { return over_.load(std::memory_order_relaxed); }
  bool allows_mmap() const { return allows_mmap_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kReplyBytesMax = 256;

 private:
  std::atomic<bool> over_{false};
  std::atomic<bool> allows_mmap_{false};
  std::atomic<bool> tells_kills_{false};
  std::uint64_t offered_ = 0;
  std::uint64_t unique_ = 0;
};

}  // namespace stdchk::mount
