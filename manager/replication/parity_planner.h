#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/policy/redundancy.h"
#include "manager/arenas/scrubber.h"
#include "manager/arenas/unanswered_writes.h"
#include "manager/pool/failure_domains.h"
#include "manager/pool/pool.h"
#include "manager/replication/copy_traffic.h"
#include "manager/space/free_space.h"
#include "manager/state/chunk_table.h"
#include "manager/state/stripe_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A ParityPlanner has parity made for chunks whose policy asks for it. It chooses chunks in
/// different failure domains. A benefactor in yet another domain reads them and computes the
/// parity. When that was verified, the stripe is journalled. The CopyPlanner then spreads parity
/// blocks that are together, and has lost blocks reconstructed.
///
/// A stripe has as many data chunks as the policy says, or fewer in three cases. Too few domains
/// exist; no further chunk came within kGather; no benefactor has room for the parity, even after
/// eviction. A chunk for whose parity there is no room lets the chunks behind it go first. The
/// domains of a stripe are neighbours in the circle of FailureDomains, so that few groups of
/// benefactors share stripes. If these have no room for the parity, any domains serve.
///
/// An unused data chunk stays while other chunks of its stripe are used. When half of them are
/// unused, or any while space is short, the used chunks get a new stripe. In the same step the
/// earlier stripe ends, and its unused chunks become free.
///
/// Drained chunks get no parity: the drain directory has them.
///
/// Threads: the reactor's.
/// Errors: what fails is planned again.
class ParityPlanner {
 public:
  struct Hooks {
    /// Examines whether the chunk lacks copies.
    std::function<void(ChunkIndex chunk)> examine;
    /// Frees memory of drained images for that many bytes. Returns true when it frees some.
    std::function<bool(std::uint64_t bytes)> evict;
  };
  ParityPlanner(Pool& pool, CopyTraffic& traffic, Scrubber& scrubber, Hooks hooks)
      : pool_(pool),
        traffic_(traffic),
        scrubber_(scrubber),
        hooks_(std::move(hooks)),
        lost_(pool, msg::BuildStripe{}) {}
  void run();
  /// Requests all stripes that can be made now of the waiting chunks.
  void plan();
  /// Queues the chunk if it lacks parity, and examines its stripe if it has one.
  void examine(ChunkIndex chunk);
  /// Space is short: at the next run(), stripes with any unused chunk are made again.
  void need_space() { short_of_space_ = true; }
  /// The number of chunks that wait for parity, and the bytes of their parity.
  std::pair<std::uint64_t, std::uint64_t> debt() const;
  /// Returns true when chunks wait for parity.
  bool lacks_parity() const;
  std::uint64_t debt_of(ChunkIndex chunk) const;
  /// Chooses the benefactors for a new image's chunks so that they can form whole stripes.
  /// `candidates` are pairs of free bytes and benefactors.
  std::vector<BenefactorId> group_of(
      const Redundancy& redundancy,
      const std::vector<std::pair<std::uint64_t, BenefactorId>>& candidates) const;
  template <class Visit>
  void for_each_reserved(Visit visit) const {
    for (const auto& [number, sent] : sent_) {
      for (const Range& range : sent.outputs) visit(sent.target, range);
    }
    lost_.for_each(visit);
  }

 private:
  struct Waiting {
    ChunkIndex chunk = kNoChunk;
    Time since{};
  };
  /// Waiting chunks of one redundancy, by the benefactor they are on.
  using Queues = std::map<BenefactorId, std::deque<Waiting>>;
  struct Chosen {
    ChunkIndex chunk = kNoChunk;
    Extent at;
  };
  struct Sent {
    BenefactorId target;
    std::uint32_t parity = 0;
    std::vector<Chosen> data;
    std::vector<Range> outputs;
    std::uint32_t length = 0;
    std::uint64_t bytes = 0;
  };

  bool needs_parity(ChunkIndex chunk) const;
  std::optional<Extent> good_copy(ChunkIndex chunk) const;
  void plan(const Redundancy& redundancy, Queues& queues);
  bool form(const Redundancy& redundancy, Queues& queues);
  bool form_in_free_space(const Redundancy& redundancy, Queues& queues, FailureDomains::Level level,
                          std::size_t most);
  void pop_fronts(const std::vector<Chosen>& data, Queues& queues);
  void clean(BenefactorId benefactor, std::deque<Waiting>& queue);
  std::vector<FailureDomains::Domain> best_group(
      const std::map<FailureDomains::Domain, std::size_t>& waiting, FailureDomains::Level level,
      std::size_t width) const;
  void make_again(ChunkIndex chunk);
  bool has_room(BenefactorId id, std::uint64_t each_bytes, std::uint32_t parity) const;
  std::vector<Chosen> most_with_room(std::vector<Chosen> chunks, FailureDomains::Level level,
                                     std::uint32_t parity, std::size_t most) const;
  std::optional<BenefactorId> choose_target(const std::vector<Chosen>& data,
                                            FailureDomains::Level level, std::uint32_t parity,
                                            std::uint64_t each_bytes);
  bool send(const Redundancy& redundancy, std::vector<Chosen> data, FailureDomains::Level level);
  void done(std::uint64_t number, const rpc::Answer& answer);
  void finish(const Sent& sent, const msg::BuildStripe::Reply& reply);
  void let_go(const Sent& sent);
  void examine_unused_stripe_members();
  void examine_stripe(const Stripe& stripe);
  bool is_needed(const Stripe& stripe) const;

  Pool& pool_;
  CopyTraffic& traffic_;
  Scrubber& scrubber_;
  const Hooks hooks_;
  UnansweredWrites lost_;
  std::map<std::uint32_t, Queues> queues_;  ///< by the number of the redundancy
  std::set<ChunkIndex> queued_;
  std::set<ChunkIndex> busy_;
  std::vector<ChunkIndex> again_;  ///< chunks whose stripes must be made again
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t numbers_made_ = 0;
  bool short_of_space_ = false;
  bool room_ = false;     ///< the last choice of a target has seen a benefactor with room
  bool evicted_ = false;  ///< the last eviction asked for has freed memory, or will
  Time evict_next_{};
  bool plan_posted_ = false;
};

}  // namespace stdchk::manager
