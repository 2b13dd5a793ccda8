#pragma once

#include <functional>

#include "manager/arenas/claims.h"
#include "manager/arenas/compactor.h"
#include "manager/arenas/extent_checks.h"
#include "manager/arenas/garbage_collector.h"
#include "manager/arenas/scrubber.h"
#include "manager/clients/fences.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_checks.h"
#include "manager/drain/drain_planner.h"
#include "manager/drain/evictor.h"
#include "manager/pool/pool.h"
#include "manager/recovery/log_replicas.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/copy_traffic.h"
#include "manager/replication/near_copies.h"
#include "manager/replication/parity_planner.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A Planners makes the planners and introduces them to each other: it is part of the manager's
/// composition root. Each planner gets the pool and its neighbours. A planner calls planners
/// above it by functions that Planners passes in.
///
/// Threads: the reactor's.
struct Planners {
  struct Hooks {
    std::function<void()> on_name_given;  ///< a change of names in the drain directory has ended
    std::function<void()> on_replica;     ///< a benefactor has stored metadata
  };
  Planners(Pool& pool, const SessionTable& sessions, Notices& notices, const Fences& fences,
           Hooks hooks);
  Planners(const Planners&) = delete;
  Planners& operator=(const Planners&) = delete;
  /// Lets each planner start its due work.
  void run();

  Claims claims;
  Compactor compactor;
  ExtentChecks extent_checks;
  Scrubber scrubber;
  GarbageCollector garbage;
  LogReplicas logs;
  CopyTraffic traffic;
  NearCopies near;
  ParityPlanner parity;
  CopyPlanner copies;
  SetKeeper sets;
  KnownFingerprints fingerprints;
  DrainPlanner drain;
  DrainChecks drain_checks;
  Evictor evictor;

 private:
  void add_claims(const SessionTable& sessions);
  /// Frees near copies, or else memory of drained images. Returns true when space may come.
  bool make_room(std::uint64_t bytes) { return near.give_up() || evictor.evict(bytes); }
};

}  // namespace stdchk::manager
