#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "client/api/filesystem.h"
#include "client/net/shared.h"
#include "client/read/version_map.h"
#include "client/write/out_chunk.h"
#include "client/write/series_naming.h"
#include "client/write/window.h"
#include "core/messages/messages.h"

namespace stdchk::client {

class Session;

/// A SessionHost holds the parts of the engine that a session uses. All functions but shared() need
/// the lock.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual Shared& shared() = 0;
  virtual Window& window() STDCHK_REQUIRES(engine_lock) = 0;
  virtual const Memory& window_memory() STDCHK_REQUIRES(engine_lock) = 0;
  virtual Clock& clock() = 0;
  /// Settings of the mount or the pool, used where the folder's policy has none. The first says
  /// whether chunks get names from their content, the second whether their content decides where
  /// they end.
  virtual bool names_chunks() const STDCHK_REQUIRES(engine_lock) = 0;
  virtual bool content_cuts() const STDCHK_REQUIRES(engine_lock) = 0;
  virtual std::uint64_t arena_bytes_total() const STDCHK_REQUIRES(engine_lock) = 0;
  /// True when the manager lists the benefactor as alive.
  virtual bool is_alive(BenefactorId benefactor) const STDCHK_REQUIRES(engine_lock) = 0;
  virtual MapStore& maps() STDCHK_REQUIRES(engine_lock) = 0;
  virtual ClientId client() const STDCHK_REQUIRES(engine_lock) = 0;
  virtual msg::WriterTotals& totals() STDCHK_REQUIRES(engine_lock) = 0;
  /// Has the reactor's thread call plan().
  virtual void schedule(Session& session) STDCHK_REQUIRES(engine_lock) = 0;
  /// The same with the thread's next work, at most 20 ms later. Costs no wake-up.
  virtual void schedule_later(Session& session) STDCHK_REQUIRES(engine_lock) = 0;
  virtual void schedule_after(Session& session, Duration delay) STDCHK_REQUIRES(engine_lock) = 0;
  /// Returns the function that says whether a commit may be sent. Empty: each may. A version implies
  /// all earlier changes of names, so a batch of unknown outcome goes first.
  virtual std::function<bool()> may_commit() STDCHK_REQUIRES(engine_lock) = 0;
  /// Called when the manager has confirmed a commit.
  virtual void committed(const msg::Commit::Reply& reply) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called when the session has ended and has no work under way.
  virtual void ended(Session& session) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called when a promised commit has failed.
  virtual void promise_broken(const Session& session) STDCHK_REQUIRES(engine_lock) = 0;
};

/// A SessionCore holds what all parts of one session share: identity, state, error, figures.
///
/// Threads: any, with the engine's lock held.
struct SessionCore {
  enum class State : std::uint8_t { kOpen, kEnding, kEnded };

  Session& session;  ///< for the host only
  SessionHost& host;
  const SessionId id;
  const FileId file;
  const std::uint32_t places;  ///< benefactors that each chunk is written to
  const std::shared_ptr<SeriesNaming> naming;
  Attributes attributes;
  State state = State::kOpen;
  std::optional<Error> error;
  SessionFigures figures;
  Time opened{};
  std::uint64_t calls_in_flight = 0;
  /// Counts managers since the session was opened. A call that an earlier manager got ends with
  /// kFenced.
  std::uint64_t manager_generation = 0;
  std::optional<bool> appends;  ///< all openers do nothing but append; unset: none was noted
  /// The last chunk is short, because the window was full and another file needed the slot. Such
  /// chunks wait for no others, and the session asks only for the space that they need.
  bool yields_slot = false;

  /// Keeps the session, and its parts, alive.
  std::shared_ptr<Session> self() const;
  Time now() const { return host.clock().now(); }
  void schedule() STDCHK_REQUIRES(engine_lock) { host.schedule(session); }
  void schedule_after(Duration delay) STDCHK_REQUIRES(engine_lock) {
    host.schedule_after(session, delay);
  }
  void notify() { host.shared().changed.notify_all(); }
  /// Fails the session. See Session::fail_with.
  void fail_with(Error why) STDCHK_REQUIRES(engine_lock);
  /// Adds a call to the manager. `answered` runs with the lock held, on the reactor's thread. See
  /// ManagerClient::call for `may_go`.
  template <class Answered>
  void call(Work& work, msg::Request request, Answered answered,
            std::function<bool()> may_go = {}) {
    ++calls_in_flight;
    ++figures.manager_calls;
    work.calls.push_back(
        {std::move(request),
         [keep = self(), this, done = std::move(answered)](rpc::Answer answer) mutable {
           const Lock lock(host.shared().mutex);
           --calls_in_flight;
           done(std::move(answer));
           // Destroys the captured objects while the lock is held.
           [[maybe_unused]] const Answered last = std::move(done);
         },
         std::move(may_go)});
  }
  /// Moves a chunk's bytes to another state of their slots.
  void move(const Segments& segments, SlotState from, SlotState to) STDCHK_REQUIRES(engine_lock) {
    for (const Segment& segment : segments) {
      if (segment.slot != nullptr) host.window().move(*segment.slot, from, to);
    }
  }
};

}  // namespace stdchk::client
