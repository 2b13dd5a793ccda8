#pragma once

#include <functional>

#include "client/engine/client_state.h"
#include "client/engine/lease_holder.h"
#include "client/engine/session_table.h"
#include "client/engine/work_queue.h"
#include "client/net/shared.h"
#include "client/read/version_map.h"
#include "client/write/session_core.h"

namespace stdchk::client {

/// A SessionServices offers the services of the engine to sessions.
///
/// Threads: as SessionHost says.
class SessionServices final : public SessionHost {
 public:
  struct Parts {
    Shared& shared;
    Clock& clock;
    MapStore& maps;
    WorkQueue& queue;
    SessionTable& sessions;
    LeaseLink& leases;
  };
  SessionServices(const Parts& parts, ClientState& state) : parts_(parts), state_(state) {}

  Shared& shared() override { return parts_.shared; }
  Clock& clock() override { return parts_.clock; }
  MapStore& maps() override { return parts_.maps; }
  Window& window() override STDCHK_REQUIRES(engine_lock) { return *state_.buffers.window; }
  const Memory& window_memory() override STDCHK_REQUIRES(engine_lock) {
    return *state_.buffers.window_memory;
  }
  bool names_chunks() const override STDCHK_REQUIRES(engine_lock) {
    return state_.registration.pool.naming != Naming::kOff;
  }
  bool content_cuts() const override STDCHK_REQUIRES(engine_lock) {
    return state_.registration.pool.content_cuts;
  }
  std::uint64_t arena_bytes_total() const override STDCHK_REQUIRES(engine_lock) {
    return state_.benefactors.arena_bytes_total();
  }
  bool is_alive(BenefactorId benefactor) const override STDCHK_REQUIRES(engine_lock) {
    return state_.benefactors.is_alive(benefactor);
  }
  ClientId client() const override STDCHK_REQUIRES(engine_lock) {
    return state_.registration.client;
  }
  msg::WriterTotals& totals() override STDCHK_REQUIRES(engine_lock) {
    return state_.counts.writers;
  }
  void schedule(Session& session) override STDCHK_REQUIRES(engine_lock) {
    parts_.queue.schedule(session);
  }
  void schedule_later(Session& session) override STDCHK_REQUIRES(engine_lock) {
    parts_.queue.schedule_later(session);
  }
  void schedule_after(Session& session, Duration delay) override STDCHK_REQUIRES(engine_lock) {
    parts_.queue.schedule_after(session, delay);
  }
  std::function<bool()> may_commit() override STDCHK_REQUIRES(engine_lock) {
    return parts_.leases.may_go();
  }
  void committed(const msg::Commit::Reply& reply) override STDCHK_REQUIRES(engine_lock) {
    parts_.leases.file_changed(reply.attributes.id);
    state_.metadata.put(reply.attributes);
    if (reply.directory.id) state_.metadata.put(reply.directory);
  }
  void ended(Session& session) override STDCHK_REQUIRES(engine_lock) {
    const SessionPtr keep = session.shared_from_this();
    parts_.sessions.remove(session);
    // After a commit the cached attributes are right. After an error they may describe bytes that
    // were dropped.
    if (session.error().has_value()) state_.metadata.forget_file(session.file());
  }
  void promise_broken(const Session& session) override STDCHK_REQUIRES(engine_lock) {
    parts_.sessions.note_lost(session);
  }

 private:
  const Parts parts_;
  ClientState& state_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
