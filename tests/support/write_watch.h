#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/values/types.h"

namespace stdchk::sim {

/// A WriteWatch tells whether bytes of a memory range have changed since they were read last,
/// whoever writes them. It makes blocks read-only (mprotect(2)). The first write to such a block
/// raises SIGSEGV, whose handler makes the block writable and notes the change. So a checker need
/// not read again what nobody has written.
///
/// Owns: the protection of the range, not the memory. Only this program may write there: a system
/// call that writes to the range fails with EFAULT.
/// Threads: stamp() on one; any thread may write.
/// Limits: under sanitizers it watches nothing, and every stamp is new.
class WriteWatch {
 public:
  /// `memory` begins and ends with a page.
  explicit WriteWatch(MutableByteSpan memory);
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  /// Returns a number for the bytes that are in this part of the range now. Equal numbers for one
  /// part mean equal bytes. Take the number before you read the bytes.
  std::uint64_t stamp(std::size_t offset, std::size_t length);

  /// For the handler: makes the block of that address writable. False: it is in no range.
  static bool let_write(const void* address);

 private:
  static constexpr std::size_t kBlock = 16384;
  void protect(std::size_t first, std::size_t end);

  const MutableByteSpan memory_;
  std::vector<unsigned char> is_protected_;  ///< by block
  std::vector<std::uint64_t> stamps_;        ///< by block: when it was protected
};

}  // namespace stdchk::sim
