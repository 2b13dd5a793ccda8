#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/base/result.h"

namespace stdchk::client {

/// A Shared is the client's one lock. It guards the window, the sessions, the maps and the caches.
/// It is held to change them, never while bytes are copied, hashed or sent. `changed` is signalled
/// after each change that a thread may wait for.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
};
using Lock = std::unique_lock<std::mutex>;

/// A Completion is the outcome of an operation of the reactor. Guarded by the lock.
struct Completion {
  std::optional<Status> status;
  std::uint64_t moved = 0;  ///< grows with each step towards the end
  bool done() const { return status.has_value(); }
};
using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace stdchk::client
