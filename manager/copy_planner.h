#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/chunk_table.h"
#include "manager/failure_domains.h"
#include "manager/free_space.h"
#include "manager/lost_images.h"
#include "manager/lost_targets.h"
#include "manager/stripe_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;
struct VersionData;

/// A CopyPlanner brings every chunk to the copies that it should have: those that a commit left
/// out, those that went with a benefactor, those whose bytes are wrong, and those on a benefactor
/// that wants to leave. The benefactors copy, each reading from another one; a copy counts when its
/// checksum was proven where it lies, and the journal has it.
///
/// The most exposed chunk goes first: with the fewest good copies, and not drained before drained.
/// Two copies are never on one host when there are at least as many hosts as copies; without as
/// many, they are on different benefactors. So it is with racks and switches; where there are fewer
/// of these than copies, all of them get some. Copies that do not count, or are more than wanted,
/// go when enough others can be read. The copies of what is on one benefactor are spread over
/// few others (core/copy_scatter.h); a full one is left out, and there are more where these are in
/// fewer domains than the copies need.
///
/// Threads: the reactor's.
/// Errors: what fails is planned again; a benefactor that did not answer is left alone for a while,
///   and the space that it may still write to is not used before it has answered.
/// Limits: kBytesBusy under way to each benefactor while somebody writes, otherwise kBytesIdle; and
///   the pool's copy rate, of which half a second goes at once. Only what a benefactor that leaves
///   hands over may exceed it.
class CopyPlanner {
 public:
  struct Figures {
    std::uint64_t debt_chunks = 0;
    std::uint64_t debt_bytes = 0;
    std::uint64_t lost_chunks = 0;  ///< no copy, and not drained
    std::uint64_t copies_made = 0;
    std::uint64_t copied_bytes = 0;
    std::uint64_t repaired = 0;  ///< of copies_made: in place of a wrong one
    std::uint64_t rebuilt = 0;   ///< of copies_made: from others of their stripe
  };

  explicit CopyPlanner(Service& service)
      : service_(service),
        lost_images_(service),
        lost_copies_(service, msg::CopyExtents{}),
        lost_stripes_(service, msg::BuildStripe{}) {}
  void run();
  void look_at(ChunkIndex chunk);
  /// A version was committed: its chunks may lack copies.
  void look_at(const VersionData& version);
  /// A benefactor has come or gone, or wants to leave: all chunks are looked at, soon.
  void benefactors_changed();
  /// The bytes of that copy are not the chunk's.
  void mark_wrong(ChunkIndex chunk, const Extent& extent);
  bool is_wrong(const Extent& extent) const { return wrong_.count(extent) > 0; }
  /// That place is not a copy of anything any more.
  void forget(const Extent& extent) { wrong_.erase(extent); }
  /// Nothing is only on that benefactor that could be copied elsewhere.
  bool may_go(BenefactorId leaving);
  msg::GetDebt::Reply debt_of(const VersionData& version) const;
  /// That version may lack copies or parity. O(slices).
  bool owes(const VersionData& version) const;
  /// No version does.
  bool owes_nothing() const;
  /// Some of it has no copy any more, cannot be made again, and was not drained.
  bool has_lost(const VersionData& version) const;
  /// How much of it, as far as the last look at its chunks has shown. O(slices).
  std::uint64_t lost_bytes(const VersionData& version) const;
  /// A chunk that is not drained has fewer copies than it should have. Cheap on average: what was
  /// drained since it was looked at last is looked at once.
  bool owes_undrained();
  /// Where one of `wanted` copies may go, of a chunk that is on `held`: the same few benefactors
  /// for all that has its first copy on the same one. None of `left_out`.
  std::vector<BenefactorId> takers_beside(const std::vector<BenefactorId>& held,
                                          std::uint32_t wanted, std::uint64_t bytes,
                                          const std::vector<BenefactorId>& left_out);
  Figures figures() const;
  std::uint64_t repaired() const { return made_.repaired; }
  /// Calls `visit(benefactor, range)` for the space that copies are being made in.
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [number, sent] : sent_) {
      for (const Item& item : sent.items) visit(sent.target, item.to);
    }
    lost_copies_.for_each(visit);
    lost_stripes_.for_each(visit);
  }

  // For the ParityPlanner, which has benefactors do the same kind of work.
  using Rank = std::uint8_t;  ///< the lower the more exposed
  bool can_take(BenefactorId id, std::uint64_t bytes, Rank rank) const;
  bool is_free(BenefactorId id, Rank rank) const;
  std::uint64_t load(BenefactorId id) const {
    const auto found = load_.find(id);
    return found == load_.end() ? 0 : found->second;
  }
  void add_load(BenefactorId id, std::uint64_t bytes) { load_[id] += bytes; }
  void take_load(BenefactorId id, std::uint64_t bytes) { load_[id] -= bytes; }
  /// By the rate, after so many bytes.
  void pace(BenefactorId target, std::uint64_t bytes);
  /// Left alone for a while.
  void park(BenefactorId id);
  /// The number that a benefactor attaches to others under.
  ClientId reader(BenefactorId target);
  void add_source(msg::BuildStripe& request, std::uint32_t number, const Chunk& chunk,
                  const Extent& at) const;

 private:
  /// What a chunk's copies are worth now.
  struct View {
    std::vector<Extent> good;     ///< these count
    std::vector<Extent> sources;  ///< these can be read
    std::vector<Extent> bad;      ///< these do not count, and go when a new one is there
    std::vector<Extent> gone;     ///< of `bad`
    std::vector<Extent> leaving;  ///< of `bad`: on a benefactor that wants to leave
    std::uint32_t wanted = 0;
    FailureDomains::Level level = FailureDomains::kBenefactor;  ///< where copies are apart
    std::set<FailureDomains::Domain> avoided;  ///< those of the stripe's other blocks
    std::vector<BenefactorId> left_out;        ///< these get nothing
  };
  struct Item {
    ChunkIndex chunk = kNoChunk;
    Extent from;
    Range to;  ///< none: the chunk has taken it, or it is free
  };
  struct Sent {
    BenefactorId source;
    BenefactorId target;
    std::vector<Item> items;
    std::uint64_t bytes = 0;
    bool built = false;  ///< from the stripe: one item, no source
    std::vector<ChunkIndex> inputs;
    std::vector<Extent> read;  ///< where they are
    bool answered = false;     ///< the journal is still to come
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
  void plan();
  void plan_soon();
  std::vector<Extent> surplus_of(const View& view) const;
  void drop_surplus();
  bool place(ChunkIndex chunk, Rank rank, Batches& batches);
  std::optional<BenefactorId> choose_target(const View& view, std::uint64_t bytes, Rank rank,
                                            bool now_only);
  std::vector<BenefactorId> takers(const View& view, std::uint64_t bytes, Rank rank);
  std::vector<BenefactorId> takers(const View& view, FailureDomains::Level level,
                                   std::uint64_t bytes, Rank rank);
  const std::vector<BenefactorId>& neighbours(BenefactorId primary);
  std::vector<BenefactorId> near(FailureDomains::Domain domain, FailureDomains::Level level) const;
  std::optional<msg::BuildStripe> build_of(ChunkIndex chunk) const;
  void send(Sent sent);
  void send(msg::BuildStripe request, Sent sent);
  void send(msg::Request request, Sent sent);
  std::optional<msg::CopyExtents::Reply> outcome_of(const Sent& sent, const rpc::Answer& answer);
  void done(std::uint64_t number, const rpc::Answer& answer);
  void give_untaken(Sent& sent);
  void settle(std::uint64_t number);
  void lose(std::uint64_t number);

  Service& service_;
  std::set<std::pair<Rank, ChunkIndex>> todo_;
  std::unordered_map<ChunkIndex, Rank> ranks_;  ///< of those in todo_
  std::set<ChunkIndex> surplus_;                ///< they may have copies that can go
  std::map<ChunkIndex, BenefactorId> busy_;     ///< a copy is being made there
  std::set<Extent> wrong_;
  ChunkIndex scan_at_ = 0;
  bool scan_posted_ = false;
  bool plan_posted_ = false;
  LostImages lost_images_;
  std::map<std::uint64_t, Sent> sent_;
  LostTargets lost_copies_;
  LostTargets lost_stripes_;
  std::uint64_t numbers_made_ = 0;
  std::map<BenefactorId, std::uint64_t> load_;  ///< bytes under way to and from each
  std::map<BenefactorId, Time> paced_;          ///< by the rate: nothing more before
  std::map<BenefactorId, Time> parked_;
  std::map<BenefactorId, ClientId> readers_;  ///< the numbers that benefactors attach under
  std::map<BenefactorId, std::vector<BenefactorId>> neighbours_;
  std::pair<Rank, ChunkIndex> resume_{};
  Time evict_next_{};
  Figures made_;
};

}  // namespace stdchk::manager
