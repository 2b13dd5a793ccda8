#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/arenas/scrubber.h"
#include "manager/arenas/unanswered_writes.h"
#include "manager/pool/failure_domains.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_queue.h"
#include "manager/replication/copy_targets.h"
#include "manager/replication/copy_traffic.h"
#include "manager/replication/lost_images.h"
#include "manager/replication/parity_planner.h"
#include "manager/space/free_space.h"
#include "manager/state/chunk_table.h"
#include "manager/state/stripe_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A CopyPlanner gives every chunk the copies that it should have. It replaces copies that a commit
/// left out, that were lost with a benefactor, that have wrong bytes, or that are on a leaving
/// benefactor. Benefactors copy, each by reading from another one. A copy counts when its checksum
/// was verified where it lies, and the journal has it.
///
/// The most exposed chunk goes first: the chunk with the fewest good copies, undrained before
/// drained. The planner drops a copy that does not count, or is surplus, once enough other copies
/// can be read. CopyTargets chooses where a copy goes.
///
/// Threads: the reactor's.
/// Errors: a failed copy is planned again. A benefactor that did not answer gets no work for 2 s.
/// The space that it may still write to stays reserved until it answers.
/// Limits: kBytesBusy in flight to each benefactor while clients write, otherwise kBytesIdle. The
/// pool's copy rate applies, with bursts of half a second. Only the hand-over of a leaving
/// benefactor may exceed it.
class CopyPlanner {
 public:
  struct Figures {
    std::uint64_t debt_chunks = 0;
    std::uint64_t debt_bytes = 0;
    std::uint64_t lost_chunks = 0;  ///< chunks without a copy that were not drained
    std::uint64_t copies_made = 0;
    std::uint64_t copied_bytes = 0;
    std::uint64_t repaired = 0;  ///< part of copies_made: in place of a wrong copy
    std::uint64_t rebuilt = 0;   ///< part of copies_made: reconstructed from the stripe
  };

  /// `evict` frees memory of drained images for that many bytes, when it can.
  CopyPlanner(Pool& pool, CopyTraffic& traffic, ParityPlanner& parity, Scrubber& scrubber,
              std::function<bool(std::uint64_t bytes)> evict);
  void run();
  /// Requests all copies that can be made now.
  void plan();
  void examine(ChunkIndex chunk);
  /// Plans for a new version, whose chunks may lack copies.
  void examine(const VersionData& version);
  /// A benefactor has come or gone, or wants to leave: examines all chunks in the next turns.
  void benefactors_changed();
  /// Notes that the bytes of that copy are not the chunk's.
  void mark_wrong(ChunkIndex chunk, const Extent& extent);
  /// Returns true when the benefactor has no sole copy that could be made elsewhere.
  bool may_leave(BenefactorId leaving);
  msg::GetDebt::Reply debt_of(const VersionData& version) const;
  /// Returns true when the version may lack copies or parity. O(slices).
  bool lacks_copies(const VersionData& version) const;
  /// Returns true when no version lacks copies or parity.
  bool is_fully_redundant() const;
  /// Returns true when an undrained part of the version has no copy and cannot be reconstructed.
  bool has_lost(const VersionData& version) const;
  /// Lost bytes of the version, as known from the last examination of its chunks. O(slices).
  std::uint64_t lost_bytes(const VersionData& version) const;
  /// Returns true when an undrained chunk has fewer copies than it should have. Cheap on average: a
  /// chunk drained since the last examination is examined only once more.
  bool lacks_undrained_copies();
  /// As CopyTargets::besides().
  std::vector<BenefactorId> copy_targets_besides(const std::vector<BenefactorId>& held,
                                                 std::uint32_t wanted, std::uint64_t bytes,
                                                 const std::vector<BenefactorId>& left_out,
                                                 bool whole) {
    return targets_.besides(held, wanted, bytes, left_out, whole);
  }
  Figures figures() const;
  std::uint64_t repaired() const { return made_.repaired; }
  /// Calls `visit(benefactor, range)` for the ranges in which copies are being made.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [number, sent] : sent_) {
      for (const Item& item : sent.items) visit(sent.target, item.to);
    }
    unanswered_copies_.for_each(visit);
    unanswered_stripes_.for_each(visit);
  }

 private:
  using Rank = CopyTraffic::Rank;
  using View = CopyView;
  struct Item {
    ChunkIndex chunk = kNoChunk;
    Extent from;
    Range to;  ///< empty: the chunk has taken it, or it is free
  };
  struct Sent {
    BenefactorId source;
    BenefactorId target;
    std::vector<Item> items;
    std::uint64_t bytes = 0;
    bool built = false;  ///< reconstructed from the stripe: one item, no source
    std::vector<ChunkIndex> inputs;
    std::vector<Extent> read;  ///< the extents of `inputs`
    bool answered = false;     ///< answered, but the result is not journalled yet
  };
  using Batches = std::map<std::pair<BenefactorId, BenefactorId>, Sent>;

  void scan();
  void update(ChunkIndex chunk);
  void update_stripe(ChunkIndex chunk);
  std::optional<Rank> rank_of(ChunkIndex chunk, const View& view) const;
  View plain_view_of(ChunkIndex chunk) const;
  View view_of(ChunkIndex chunk) const;
  std::pair<std::size_t, std::size_t> blocks_of(const Stripe& stripe) const;
  std::uint64_t debt_of(ChunkIndex chunk, std::size_t copies, std::set<ChunkIndex>& seen) const;
  void plan_soon();
  std::vector<Extent> surplus_copies(const View& view) const;
  void drop_surplus();
  bool place(ChunkIndex chunk, Rank rank, Batches& batches);
  std::optional<msg::BuildStripe> build_of(ChunkIndex chunk) const;
  void send(Sent sent);
  void send(msg::BuildStripe request, Sent sent);
  void send(msg::Request request, Sent sent);
  std::optional<msg::CopyExtents::Reply> outcome_of(const Sent& sent, const rpc::Answer& answer);
  void done(std::uint64_t number, const rpc::Answer& answer);
  void free_unused_targets(Sent& sent);
  void settle(std::uint64_t number);
  void on_unknown_outcome(std::uint64_t number);

  Pool& pool_;
  CopyTraffic& traffic_;
  ParityPlanner& parity_;
  Scrubber& scrubber_;
  const std::function<bool(std::uint64_t)> evict_;
  CopyQueue queue_;
  std::set<ChunkIndex> surplus_;             ///< chunks that may have surplus copies
  std::map<ChunkIndex, BenefactorId> busy_;  ///< chunk -> benefactor that is making a copy
  ChunkIndex scan_at_ = 0;
  bool scan_posted_ = false;
  bool plan_posted_ = false;
  LostImages lost_images_;
  std::map<std::uint64_t, Sent> sent_;
  UnansweredWrites unanswered_copies_;
  UnansweredWrites unanswered_stripes_;
  std::uint64_t numbers_made_ = 0;
  CopyTargets targets_;
  CopyQueue::Entry resume_{};
  Time evict_next_{};
  Figures made_;
};

}  // namespace stdchk::manager
