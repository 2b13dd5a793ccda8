#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"

namespace stdchk::transport::verbs {

/// A LockedMemory says how much more memory this process may pin for a device.
struct LockedMemory {
  bool unlimited = false;         ///< no limit, or CAP_IPC_LOCK
  std::uint64_t limit_bytes = 0;  ///< RLIMIT_MEMLOCK
  std::uint64_t pinned_bytes = 0;

  /// kMemlock when `bytes` more would be too many. The kernel would say no more than ENOMEM.
  Status check(std::uint64_t bytes, const char* where) const;
};

/// Of the text of /proc/PID/status (proc(5)) and the limit in bytes (~0: none).
LockedMemory locked_memory(std::string_view status, std::uint64_t limit_bytes);
/// Of this process, now.
LockedMemory locked_memory();

}  // namespace stdchk::transport::verbs
