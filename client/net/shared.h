#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/result.h"

namespace stdchk::client {

/// An EngineLock is the capability, for Clang's analysis, to use the data that an engine's lock
/// guards.
class STDCHK_CAPABILITY("engine's lock") EngineLock {
 public:
  /// Tells the analysis that the caller holds the lock. For callbacks of functions that also work
  /// without the lock.
  void assert_held() const STDCHK_ASSERT_HELD() {}
};
/// Stands in attributes for the lock of the engine that the code belongs to. A process may have
/// several engines, and the analysis does not tell their locks apart.
inline constexpr EngineLock engine_lock;

/// An EngineMutex is the mutex of one engine. Take it by a Lock.
class EngineMutex final : public Mutex {};

/// A Shared is the client's one lock. It guards the window, the sessions, the maps and the caches.
/// It is held to change them, never while bytes are copied, hashed or sent. `changed` is signalled
/// after each change that a thread may wait for.
struct Shared {
  EngineMutex mutex;
  CondVar changed;
};

/// A Lock holds the engine's lock until its end, except between unlock() and lock().
///
/// Threads: the thread that made it.
class STDCHK_SCOPED_CAPABILITY Lock final : public MutexLock {
 public:
  // The analysis would ask for the mutex, not for `engine_lock`.
  explicit Lock(EngineMutex& mutex) STDCHK_ACQUIRE(engine_lock) STDCHK_NOT_ANALYSED
      : MutexLock(mutex) {}
  ~Lock() STDCHK_RELEASE() = default;
};

/// An Unlocked releases the caller's Lock until its end.
class STDCHK_SCOPED_CAPABILITY Unlocked final {
 public:
  // The analysis does not connect `lock` with `engine_lock`.
  explicit Unlocked(Lock& lock) STDCHK_RELEASE(engine_lock) STDCHK_NOT_ANALYSED : lock_(lock) {
    lock_.unlock();
  }
  ~Unlocked() STDCHK_RELEASE() STDCHK_NOT_ANALYSED { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Lock& lock_;
};

/// A Completion is the outcome of an operation of the reactor. Guarded by the lock. Its waiters have
/// a condition of their own: with many threads, Shared::changed would wake all of them for each.
struct Completion {
  std::optional<Status> status;
  CondVar ended;            ///< signalled by end()
  std::uint64_t moved = 0;  ///< grows with each step towards the end
  bool done() const { return status.has_value(); }
  void end(Status with) {
    status = std::move(with);
    ended.notify_all();
  }
};
using CompletionPtr = std::shared_ptr<Completion>;

}  // namespace stdchk::client
