#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

struct fuse_session;

namespace stdchk::mount {

/// An InitExchange accepts kernel capabilities for which libfuse 3.14 has no names. It sets their
/// bits in the answer to FUSE_INIT while that passes through.
/// - FUSE_HANDLE_KILLPRIV_V2: without it the kernel asks for security.capability before each write
///   through its cache, which is ten times slower at 4 KiB. With it, the mount clears set-id bits.
/// - FUSE_TMPFILE: a request to make a file without a name reaches libfuse as a FUSE_CREATE of the
///   name kUnnamed.
/// - FUSE_DIRECT_IO_ALLOW_MMAP: files that are opened around the page cache can be mapped shared.
///
/// Threads: one thread makes the exchange; afterwards allows_mmap() may be called on any thread.
/// Not: necessary. Capabilities that the kernel does not offer are left out.
class InitExchange {
 public:
  /// Passes the traffic between a mounted `session` and the kernel through an exchange. `find`
  /// returns the exchange for the session's user data. Returns false, without any change, if
  /// libfuse refuses.
  using Find = InitExchange& (*)(void* user);
  static bool install(fuse_session* session, Find find);

  /// To be called with each request from the kernel, before libfuse reads it.
  void received(const std::byte* bytes, std::size_t size);
  /// To be called with each answer to the kernel: its header and body. Returns true when `patched`
  /// must be sent in place of the body.
  bool answering(const std::byte* header, const std::byte* body, std::size_t body_size,
                 std::byte* patched);

  /// Whether the request that this thread has received last takes set-ID bits away: its caller has
  /// no CAP_FSETID (FUSE_WRITE_KILL_SUIDGID and its like, linux/fuse.h). Nothing: the kernel does
  /// not say.
  std::optional<bool> kills_set_id() const;

  bool over() const { return over_.load(std::memory_order_relaxed); }
  bool allows_mmap() const { return allows_mmap_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kReplyBytesMax = 256;
  /// The name that the kernel sends for a file without a name.
  static constexpr std::string_view kUnnamed = "/";

 private:
  std::atomic<bool> over_{false};
  std::atomic<bool> allows_mmap_{false};
  std::atomic<bool> tells_kills_{false};
  std::uint64_t offered_ = 0;
  std::uint64_t unique_ = 0;
};

}  // namespace stdchk::mount
