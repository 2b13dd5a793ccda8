#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/journal/command.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// LogReplicas are the benefactors that keep what the journal says (KeepLog), on different hosts
/// where there are some, so that the pool outlives the manager's disk (rule M8).
///
/// Each gets a snapshot, then every record. One whose log is whole counts: a change is answered
/// when all that count have it. One that does not answer within kStoreDeadline counts no more, and
/// another one takes its place.
///
/// Where the manager has a standby, more than half of the keepers that the standby decides by must
/// have a change, too. The standby takes over only when more than half of them have promised it to
/// keep nothing for this manager any more: so what is answered is in what it takes over from, and
/// nothing is answered afterwards (docs/decisions/0017).
///
/// A log grows with what it must hold, up to what its benefactor has said. Before that is reached
/// the log is begun anew from a snapshot. Where even a snapshot does not fit, and before that
/// happens, advice() says so.
///
/// Threads: the reactor's. Limits: limits::kLogCopies keepers; one request at each.
class LogReplicas final : public JournalReplicas {
 public:
  /// Calls `on_replica` after each answer of a benefactor that stores the log.
  LogReplicas(Pool& pool, std::function<void()> on_replica);

  /// The standby asks by whom it decides. Calls of one that has ended, and of one in its place, are
  /// the same.
  msg::FollowManager::Reply follow(const msg::FollowManager& request);

  /// The command was applied as number `sequence`.
  void append(std::uint64_t sequence, const Command& command) override;
  /// Calls `done` when all that count have that record, which is at once when none does; in the
  /// order of the calls.
  void when_stored(std::uint64_t sequence, std::function<void()> done) override;
  /// Finds keepers, and begins logs anew that have grown long.
  void run();
  /// Those that count, and how many they are.
  std::set<BenefactorId> counting() const;
  std::uint32_t count() const;
  /// One may count soon: its log begins, or a benefactor has not come back yet.
  bool may_begin() const;
  struct Figures {
    std::uint64_t log_bytes = 0;     ///< of the longest log
    std::uint64_t needed_bytes = 0;  ///< memory for a log and the one that takes its place
    std::uint64_t room_bytes = 0;  ///< the least that a benefactor has that keeps one, or was full
    std::uint32_t full = 0;        ///< benefactors that had no room
    std::uint32_t voters = 0;      ///< by more than half of whom the standby decides
    std::uint32_t reached = 0;     ///< of them, those that count
  };
  Figures figures() const;
  /// What endangers the pool's metadata, and what to do: a sentence each. Empty: nothing, or
  /// benefactors may still come.
  std::vector<std::string> advice() const;

 private:
  enum class Danger : std::uint8_t { kFull, kHostShort, kNearlyFull, kFewReplicas, kNoMajority };
  struct Piece {
    std::shared_ptr<const std::string> bytes;
    std::uint64_t sequence = 0;  ///< of the record that ends here; 0: it goes on
    bool begins = false;
  };
  struct Replica {
    std::deque<Piece> waiting;
    bool in_flight = false;
    bool counts = false;
    bool starting = false;             ///< its snapshot is under way
    std::uint64_t offset = 0;          ///< sent so far
    std::uint64_t snapshot_bytes = 0;  ///< of that
    std::uint64_t sequence = 0;        ///< that it has
  };

  /// Keepers that the standby may decide by.
  struct Voters {
    std::uint64_t number = 0;
    std::set<BenefactorId> ids;
  };

  bool agreed(std::uint64_t sequence) const;
  /// With a snapshot, which several may share.
  void start(BenefactorId id, const std::vector<Piece>& pieces);
  void send(BenefactorId id);
  void answered(BenefactorId id, std::uint64_t sequence, const rpc::Answer& answer);
  void drop(BenefactorId id, const Error& why);
  bool begin_anew_if_full(BenefactorId id);
  std::uint64_t items() const;
  std::uint64_t estimated_snapshot_bytes() const;
  std::map<Danger, std::string> dangers() const;
  void log_advice();
  void settle();
  void settle_later();
  bool may_store(BenefactorId id) const;
  void spread();
  void add_replicas();
  std::vector<Piece> snapshot();

  Pool& pool_;
  const std::function<void()> on_replica_;
  std::map<BenefactorId, Replica> replicas_;
  struct Full {
    std::uint64_t room_bytes = 0;    ///< that it may have
    std::uint64_t needed_bytes = 0;  ///< when it was full
    Time until{};                    ///< not asked before
    /// It may have more than it needs, and its host had no memory for that.
    bool by_host() const { return needed_bytes <= room_bytes; }
  };
  std::map<BenefactorId, Time> not_before_;
  std::map<BenefactorId, Full> full_;  ///< the metadata did not fit there
  std::uint64_t snapshot_bytes_ = 0;   ///< of the newest snapshot
  std::uint64_t snapshot_items_ = 0;   ///< files and chunks that were in it
  std::set<Danger> logged_;            ///< in the log
  std::deque<std::pair<std::uint64_t, std::function<void()>>> waiting_;
  bool settling_ = false;
  /// What the standby has, and what it was told since and may have. Empty: there is no standby.
  std::deque<Voters> voters_;
};

}  // namespace stdchk::manager
