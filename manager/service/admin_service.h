#pragma once

#include <cstdint>
#include <functional>

#include "core/messages/messages.h"
#include "manager/arenas/audit.h"
#include "manager/arenas/claims.h"
#include "manager/arenas/garbage_collector.h"
#include "manager/arenas/scrubber.h"
#include "manager/clients/call.h"
#include "manager/clients/clients.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/pool.h"
#include "manager/recovery/log_replicas.h"
#include "manager/replication/copy_planner.h"
#include "manager/service/admissions.h"
#include "manager/sessions/placement.h"
#include "manager/sessions/totals.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// An AdminService serves those who run the pool: figures, checks, scrubs, garbage collection, and
/// the drain on request.
///
/// Threads: the reactor's.
class AdminService {
 public:
  struct Neighbours {
    const Clients& clients;
    const SessionTable& sessions;
    Placement& placement;
    Totals& totals;
    CopyPlanner& copies;
    Scrubber& scrubber;
    GarbageCollector& garbage;
    const Claims& claims;
    SetKeeper& sets;
    DrainPlanner& drain;
    const LogReplicas& logs;
    const Admissions& admissions;
    std::function<std::uint64_t()> requests_served;
  };
  AdminService(Pool& pool, Neighbours neighbours);

  void serve(ClientRecord& client, const msg::GetDebt& request, const Call& call);
  void serve(ClientRecord& client, const msg::Scrub& request, const Call& call);
  void serve(ClientRecord& client, const msg::CheckMetadata& request, const Call& call);
  void serve(ClientRecord& client, const msg::CollectGarbage& request, const Call& call);
  void serve(ClientRecord& client, const msg::StatPool& request, const Call& call);
  void serve(ClientRecord& client, const msg::DrainNow& request, const Call& call);

  /// The state and activity of the pool. Undrained files and parity are counted by a walk. A walk
  /// of 50 ms is repeated after 1 s at the earliest, and its figures are used until then.
  msg::StatPool::Reply statistics() const;
  /// Checks all metadata now.
  Audit audit() const { return Audit(pool_, to_.sessions, to_.claims); }

 private:
  /// Figures whose count takes time in proportion to the undrained files and to the stripes.
  struct Walked {
    msg::DrainNow::Reply drain;
    std::uint64_t parity_bytes = 0;
  };
  const Walked& walk() const;
  msg::Scrub::Reply scrub_figures() const;

  Pool& pool_;
  const State& state_;
  Neighbours to_;
  mutable Walked walked_;
  mutable Time next_walk_{};
};

}  // namespace stdchk::manager
