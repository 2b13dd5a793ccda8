#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "core/result.h"

namespace stdchk::client {

/// A Shared is the client's one lock: it guards the window, the sessions, the maps and the caches.
/// It is held for as long as it takes to change them; bytes are copied, hashed and sent without it.
/// `changed` is signalled after each change that someone may wait for.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
};
using Lock = std::unique_lock<std::mutex>;

/// A Completion is the outcome of something the reactor does. Guarded by the lock.
struct Completion {
  std::optional<Status> status;
  std::uint64_t moved = 0;  ///< grows as the end comes nearer
  bool done() const { return status.has_value(); }
};
using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace stdchk::client
