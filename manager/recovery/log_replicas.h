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
#include "manager/journal/metadata_log.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A LogReplicas has benefactors store the journal's records (KeepLog), so that the pool outlives
/// the manager's disk (rule M8). It prefers benefactors on different hosts.
///
/// A replica gets a snapshot, then every record. It counts when its log is whole. A change is
/// answered when all replicas that count have it. A replica that does not answer within
/// kStoreDeadline counts no more, and another benefactor takes its place.
///
/// With a standby, a majority of the standby's quorum must have a change, too. The standby takes
/// over only after a majority has promised to store nothing more for this manager. So the standby
/// gets every change that was answered, and no change is answered afterwards
/// (docs/decisions/0017).
///
/// A log grows up to the size that its benefactor allows. Before it reaches this size, it begins
/// anew from a snapshot. advice() warns when a snapshot does not fit, or soon will not.
///
/// Threads: the reactor's. Limits: limits::kLogCopies replicas; one request at each.
class LogReplicas final : public JournalReplicas {
 public:
  /// Calls `on_replica` after each answer of a benefactor that stores the log.
  LogReplicas(Pool& pool, std::function<void()> on_replica);

  /// Serves a standby that asks for its quorum. A standby that replaces an earlier standby may
  /// continue its calls.
  msg::FollowManager::Reply follow(const msg::FollowManager& request);

  /// See JournalReplicas.
  void append(std::uint64_t sequence, const Command& command) override;
  /// See JournalReplicas. With a standby, `done` also waits for a majority of the standby's
  /// quorum.
  void when_stored(std::uint64_t sequence, std::function<void()> done) override;
  /// Adds replicas while there are too few, and begins long logs anew.
  void run();
  /// Returns the benefactors whose logs count.
  std::set<BenefactorId> complete_replicas() const;
  std::uint32_t count() const;  ///< their number
  /// Returns true when a log is beginning, or a benefactor has not come back yet.
  bool is_gaining_replicas() const;
  struct Figures {
    std::uint64_t log_bytes = 0;     ///< of the longest log
    std::uint64_t needed_bytes = 0;  ///< memory for a log and the one that takes its place
    std::uint64_t room_bytes = 0;    ///< smallest limit of a benefactor with a log, or full
    std::uint32_t full = 0;          ///< benefactors that had no room
    std::uint32_t quorum = 0;        ///< benefactors by which the standby decides
    std::uint32_t reached = 0;       ///< of the quorum: benefactors whose logs count
  };
  Figures figures() const;
  /// Returns a sentence for each danger to the pool's metadata, with advice. Empty while there is
  /// no danger, or benefactors may still come.
  std::vector<std::string> advice() const;

 private:
  enum class Danger : std::uint8_t { kFull, kHostShort, kNearlyFull, kFewReplicas, kNoMajority };
  struct Piece {
    std::shared_ptr<const std::string> bytes;
    std::uint64_t sequence = 0;  ///< of the record that ends here; 0: the record goes on
    bool begins = false;
  };
  struct Replica {
    std::deque<Piece> waiting;
    bool in_flight = false;
    bool counts = false;
    bool starting = false;             ///< its snapshot is under way
    std::uint64_t offset = 0;          ///< bytes sent so far
    std::uint64_t snapshot_bytes = 0;  ///< bytes of its snapshot, part of `offset`
    std::uint64_t sequence = 0;        ///< the newest record that it has stored
  };

  /// The benefactors by a majority of which the standby may decide.
  struct Quorum {
    std::uint64_t number = 0;
    std::set<BenefactorId> ids;
  };

  bool agreed(std::uint64_t sequence) const;
  /// Begins a log with a snapshot. Several logs may share `pieces`.
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
  const LogKeys keys_;
  std::map<BenefactorId, Replica> replicas_;
  struct Full {
    std::uint64_t room_bytes = 0;    ///< limit of its log
    std::uint64_t needed_bytes = 0;  ///< when it was full
    Time until{};                    ///< not asked before
    /// Returns true when the limit was large enough, but the host had no memory.
    bool by_host() const { return needed_bytes <= room_bytes; }
  };
  std::map<BenefactorId, Time> not_before_;
  std::map<BenefactorId, Full> full_;  ///< the metadata did not fit there
  std::uint64_t snapshot_bytes_ = 0;   ///< of the newest snapshot
  std::uint64_t snapshot_items_ = 0;   ///< files and chunks that were in it
  std::set<Danger> logged_;            ///< dangers of which the program's log has a warning
  std::deque<std::pair<std::uint64_t, std::function<void()>>> waiting_;
  bool settling_ = false;
  /// The standby's quorum, then a newer quorum that the standby may know. Empty: no standby exists.
  std::deque<Quorum> quorums_;
};

}  // namespace stdchk::manager
