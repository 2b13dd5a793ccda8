#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/result.h"

namespace stdchk::transport::verbs {

/// A LockedMemory is this process's limit for pinned memory, and what it has pinned.
struct LockedMemory {
  bool unlimited = false;         ///< no limit, or the process has CAP_IPC_LOCK
  std::uint64_t limit_bytes = 0;  ///< the limit RLIMIT_MEMLOCK
  std::uint64_t pinned_bytes = 0;

  /// Returns kMemlock when `bytes` more would exceed the limit. The kernel would only say ENOMEM.
  Status check(std::uint64_t bytes, const char* where) const;
};

/// Parses the text of /proc/PID/status (proc(5)). `limit_bytes` ~0 means no limit.
LockedMemory locked_memory(std::string_view status, std::uint64_t limit_bytes);
/// Reads the present values of this process.
LockedMemory locked_memory();

}  // namespace stdchk::transport::verbs
