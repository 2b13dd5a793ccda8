#pragma once

#include <cstdint>
#include <utility>

#include "core/messages/messages.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/parity_planner.h"
#include "manager/sessions/ledger.h"
#include "manager/sets/set_keeper.h"

namespace stdchk::manager {

/// A Totals collects the figures of a pool's report card: what clients report, time at risk, waits
/// for space, and sets that overtook the drain.
///
/// Owns: the Ledger. Threads: the reactor's.
class Totals {
 public:
  Totals(Pool& pool, CopyPlanner& copies, ParityPlanner& parity, const SetKeeper& sets)
      : pool_(pool), copies_(copies), parity_(parity), sets_(sets) {}

  /// Samples how full the pool is and whether data is at risk. Call it in each tick.
  void sample();
  /// Returns true when an undrained image depends on one benefactor. Either its policy asks for one
  /// copy, or not all wanted copies or parity exist yet.
  bool at_risk();
  /// Bytes lent by all benefactors that are not presumed lost, and the free bytes among them.
  std::pair<std::uint64_t, std::uint64_t> lent_and_free() const;
  std::uint64_t quarantined_bytes() const;
  /// Notes a committed file. With the first file of a set, checks whether the drain has kept up with
  /// the earlier sets. A directory counts from the first commit under a name of sets.
  void note_image(const File& file);
  /// Notes that a session lacks space. A pool that still waits for its benefactors is not full.
  void note_shortage(SessionRecord& session);
  void end_shortage(SessionRecord& session);
  void add_conflicts(std::uint32_t count) { conflicts_ += count; }
  /// Ranges of files that a commit laid over what others had committed since its session began.
  std::uint64_t conflicts() const { return conflicts_; }
  Ledger& ledger() { return ledger_; }
  msg::PoolTotals all() const;

 private:
  Pool& pool_;
  CopyPlanner& copies_;
  ParityPlanner& parity_;
  const SetKeeper& sets_;
  Ledger ledger_;
  std::uint64_t conflicts_ = 0;
};

}  // namespace stdchk::manager
