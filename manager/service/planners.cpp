#include "manager/service/planners.h"

#include <utility>

namespace stdchk::manager {

Planners::Planners(Pool& pool, const SessionTable& sessions, Notices& notices, const Fences& fences,
                   Hooks hooks)
    : claims(pool),
      compactor(pool),
      extent_checks(pool, fences),
      scrubber(pool, [this](ChunkIndex chunk, const Extent& at) { copies.mark_wrong(chunk, at); }),
      garbage(pool, claims, scrubber),
      logs(pool, std::move(hooks.on_replica)),
      traffic(pool, sessions,
              [this] {
                copies.plan();
                parity.plan();
              }),
      near(pool, traffic, scrubber),
      parity(pool, traffic, scrubber,
             {[this](ChunkIndex chunk) { copies.examine(chunk); },
              [this](std::uint64_t bytes) { return make_room(bytes); }}),
      copies(pool, traffic, parity, scrubber,
             [this](std::uint64_t bytes) { return make_room(bytes); }),
      sets(pool, copies, sessions, notices,
           [this](FileId file) { drain.prioritise(file, DrainRank::kChosen); }),
      drain(pool, sets, scrubber, sessions, notices, fingerprints, std::move(hooks.on_name_given)),
      drain_checks(pool, drain, copies, notices, fingerprints),
      evictor(pool, drain, drain_checks, sessions) {
  add_claims(sessions);
  pool.journal().replicate_to(logs);
}

void Planners::add_claims(const SessionTable& sessions) {
  claims.add_holder(ClaimKind::kGranted, [&sessions](const Claims::Visit& visit) {
    for (const auto& [id, session] : sessions.all()) {
      for (const auto& granted : session.grants) {
        const GrantRecord& record = granted.second;
        record.for_each_unused([&](std::uint64_t offset, std::uint64_t bytes) {
          visit(record.grant.benefactor, {offset, bytes});
        });
      }
    }
  });
  claims.add_holder(ClaimKind::kReserved, [this](const Claims::Visit& visit) {
    copies.for_each_reserved(visit);
    near.for_each_reserved(visit);
    parity.for_each_reserved(visit);
    compactor.for_each_reserved(visit);
    garbage.for_each_reserved(visit);
  });
}

void Planners::run() {
  sets.run();  // before the drain, which takes its order from the sets
  drain.run();
  compactor.run();
  copies.run();
  near.run();
  parity.run();
  garbage.run();
  scrubber.run();
  logs.run();
}

}  // namespace stdchk::manager
