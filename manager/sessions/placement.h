#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "manager/arenas/compactor.h"
#include "manager/arenas/garbage_collector.h"
#include "manager/clients/call.h"
#include "manager/clients/fences.h"
#include "manager/clients/sessions.h"
#include "manager/drain/evictor.h"
#include "manager/pool/pool.h"
#include "manager/pool/replaced_files.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/near_copies.h"
#include "manager/replication/parity_planner.h"
#include "manager/sessions/totals.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A Placement grants sessions space for their chunks: it chooses the benefactors, and takes the
/// ranges. A request that finds no space waits while some may become free.
///
/// A session that is placed by node writes to the benefactor on its writer's node. A node with
/// several benefactors uses the first one. For a node without benefactors, always the same
/// benefactor stands in. Chunks without room there go to another benefactor of the node, or else to
/// the benefactor with most free space.
///
/// Owns: the requests that wait. Threads: the reactor's.
class Placement {
 public:
  struct Neighbours {
    SessionTable& sessions;
    const Fences& fences;
    CopyPlanner& copies;
    NearCopies& near;
    ParityPlanner& parity;
    Compactor& compactor;
    Evictor& evictor;
    GarbageCollector& garbage;
    SetKeeper& sets;
    Totals& totals;
    ReplacedFiles& replaced;
  };
  struct Wanted {
    std::uint64_t bytes = 0;
    std::uint64_t unit_bytes = 0;
    std::vector<BenefactorId> avoid{};
    std::vector<BenefactorId> beside{};
  };
  Placement(Pool& pool, Neighbours neighbours);

  /// Answers a request for space, now or when there is some. The session must be open.
  void place(SessionRecord& session, const msg::Place& request, const Call& call);
  /// Grants the session up to the wanted bytes.
  std::vector<Grant> grants(SessionRecord& session, const Wanted& wanted);
  /// Takes a grant back. With `clean` its unused space is free at once; otherwise only when the
  /// client is fenced.
  void give_back(SessionRecord& session, GrantId grant, bool clean);
  /// Gives a session that is placed by node its home, and another one when its home has gone.
  void settle_home(SessionRecord& session);
  /// Retries requests that wait for space. A request that finds none waits on, until shortly before
  /// its deadline.
  void retry();

 private:
  struct Waiting {
    SessionId session;
    msg::Place request;
    Call call;
  };
  struct Eviction {
    Time last{};        ///< drained memory there was given up, or is being checked
    Time not_before{};  ///< there was none to give up
  };
  /// Free bytes and benefactor.
  using Candidates = std::vector<std::pair<std::uint64_t, BenefactorId>>;
  void place_when_possible(SessionId id, msg::Place request, const Call& call);
  void choose_stripe(SessionRecord& session, const Wanted& wanted);
  Candidates candidates_without(const std::vector<BenefactorId>& avoid) const;
  std::vector<PlaceSet> choose_sets(const SessionRecord& session, const Candidates& candidates,
                                    const Wanted& wanted);
  std::vector<BenefactorId> further_places(const SessionRecord& session,
                                           std::vector<BenefactorId> held, const Wanted& wanted,
                                           const std::map<BenefactorId, std::size_t>& uses);
  bool waits_for_home(SessionRecord& session, const msg::Place& request);
  void choose_node(SessionRecord& session, const Wanted& wanted);
  void grant_set(SessionRecord& session, const PlaceSet& set, std::uint64_t want_bytes,
                 std::uint64_t unit, std::vector<Grant>& out);
  std::uint64_t fair_share(const SessionRecord& session) const;
  std::uint64_t unit_of(std::uint64_t unit_bytes) const;
  bool make_room(SessionId asking, std::uint64_t want_bytes, std::uint64_t unit_bytes);

  Pool& pool_;
  Neighbours to_;
  std::deque<Waiting> waiting_;
  std::map<BenefactorId, Eviction> evictions_;  ///< on homes without room
};

}  // namespace stdchk::manager
