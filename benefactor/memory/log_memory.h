#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/values/types.h"

namespace stdchk::benefactor {

/// How much memory a metadata log may have.
struct LogRoom {
  std::uint64_t base_bytes = 0;  ///< taken at the start, and kept
  std::uint64_t bytes_max = 0;   ///< taken when it is needed, and given back afterwards
  /// Returns whether the log may take this many bytes more than `base_bytes`. nullptr: always.
  std::function<bool(std::uint64_t more_bytes)> may_grow{};
};

/// A LogMemory is one contiguous range of addresses that gets its memory in steps.
///
/// Owns: the mapping. Threads: one.
/// Errors: ensure() returns false when the memory is not available; earlier content stays.
class LogMemory {
 public:
  /// Takes and touches `room.base_bytes`: a later shortage of memory cannot refuse them.
  explicit LogMemory(LogRoom room);
  ~LogMemory();
  LogMemory(const LogMemory&) = delete;
  LogMemory& operator=(const LogMemory&) = delete;

  std::byte* data() const { return data_; }
  /// The limit of ensure(). Smaller than the room's when the kernel refused the addresses.
  std::uint64_t bytes_max() const { return room_.bytes_max; }
  /// Memory that this process has taken from its host.
  std::uint64_t taken_bytes() const { return taken_bytes_; }
  /// The first `bytes` can be used.
  bool ensure(std::uint64_t bytes);
  /// Returns memory behind the first `bytes` to the system, but never memory of the base.
  void trim(std::uint64_t bytes);

 private:
  LogRoom room_;
  std::byte* data_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;  ///< whole steps, or all
};

}  // namespace stdchk::benefactor
