#pragma once

#include <functional>
#include <vector>

#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/file_threads.h"
#include "client/write/session.h"
#include "core/base/clock.h"
#include "core/runtime/reactor.h"

namespace stdchk::client {

/// A WorkQueue collects, under the lock, work that the reactor's thread starts without the lock.
/// New work wakes the reactor, which calls `pump`. `pump` takes the batch and starts it.
///
/// Owns: the work until take().
/// Threads: any, as the attributes say.
class WorkQueue {
 public:
  /// A Batch is the work collected since the last take().
  struct Batch {
    Work planned;                   ///< by the sessions that were scheduled
    std::vector<Work::Call> calls;  ///< to the manager
    std::vector<Transfer*> reads;
    std::vector<std::function<void()>> executor_work;
    std::vector<FileWork> file_work;
  };

  /// `pump` runs on the reactor's thread without the lock.
  WorkQueue(Shared& shared, Reactor& reactor, std::function<void()> pump)
      : shared_(shared), reactor_(reactor), pump_(std::move(pump)) {}

  void call(Work::Call call) STDCHK_REQUIRES(engine_lock);
  void read(Transfer& transfer) STDCHK_REQUIRES(engine_lock);
  /// Puts reads back that wait for the next batch, before all other reads.
  void read_first(std::vector<Transfer*> transfers) STDCHK_REQUIRES(engine_lock);
  void run_later(std::function<void()> work) STDCHK_REQUIRES(engine_lock);
  void read_later(FileWork work) STDCHK_REQUIRES(engine_lock);
  /// Has the session planned in the next batch.
  void schedule(Session& session) STDCHK_REQUIRES(engine_lock);
  /// The same after `delay`. Reactor's thread only, because only that thread sets timers.
  void schedule_after(Session& session, Duration delay) STDCHK_REQUIRES(engine_lock);
  /// Has the session planned in the next batch, but does not wake the reactor's thread for it.
  void schedule_later(Session& session) STDCHK_REQUIRES(engine_lock);

  /// Lets the sessions that were scheduled plan, and returns all work. Reactor's thread.
  Batch take() STDCHK_REQUIRES(engine_lock);
  /// Returns true, once, when there may be work for which `pump` was not posted. The caller should
  /// call `pump`. Either the reactor's queue of posts was full, or schedule_later() was called.
  bool take_left_behind() STDCHK_REQUIRES(engine_lock);
  /// Drops the work, because the client ends.
  void clear() STDCHK_REQUIRES(engine_lock);

 private:
  void wake() STDCHK_REQUIRES(engine_lock);

  Shared& shared_;
  Reactor& reactor_;
  const std::function<void()> pump_;
  bool woken_ STDCHK_GUARDED_BY(engine_lock) = false;        ///< `pump_` is posted already
  bool left_behind_ STDCHK_GUARDED_BY(engine_lock) = false;  ///< see take_left_behind()
  std::vector<SessionPtr> scheduled_ STDCHK_GUARDED_BY(engine_lock);
  std::vector<Work::Call> calls_ STDCHK_GUARDED_BY(engine_lock);
  std::vector<Transfer*> reads_ STDCHK_GUARDED_BY(engine_lock);
  std::vector<std::function<void()>> executor_work_ STDCHK_GUARDED_BY(engine_lock);
  std::vector<FileWork> file_work_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
