#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/redundancy.h"
#include "manager/chunk_table.h"
#include "manager/failure_domains.h"
#include "manager/free_space.h"
#include "manager/lost_targets.h"
#include "manager/stripe_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;

/// A ParityPlanner has parity made for chunks whose policy asks for it: it takes chunks that lie in
/// different failure domains, and has a benefactor in yet another domain read them and compute.
/// What was proven there is journalled as a stripe; parity blocks that are still together are
/// spread by the CopyPlanner, which also has lost blocks made again.
///
/// A stripe has as many chunks as the policy says, or fewer: when there are not enough domains,
/// when no further chunk came within kGather, and when no benefactor has room for all of its parity
/// and nothing can be evicted. Chunks for whose parity there is no room let those behind them go
/// first. Its domains are neighbours in the circle of FailureDomains, so that few sets of
/// benefactors hold all of anything; where there is no room for their parity, any domains.
///
/// A data chunk that nobody uses any more stays while others of its stripe are used. When half of
/// them are unused, or any when space is short, those in use get a stripe of their own; in the same
/// step the earlier one ends, and what was unused is free.
///
/// Drained chunks get no parity: the drain directory has them.
///
/// Threads: the reactor's.
/// Errors: what fails is planned again.
class ParityPlanner {
 public:
  explicit ParityPlanner(Service& service)
      : service_(service), lost_(service, msg::BuildStripe{}) {}
  void run();
  /// Has made what can be made now of the chunks that wait.
  void plan();
  /// That chunk may lack parity.
  void look_at(ChunkIndex chunk);
  /// Space is short: stripes with unused chunks are made again for some time.
  void need_space() { short_of_space_ = true; }
  /// Chunks that wait for parity, and the parity's bytes.
  std::pair<std::uint64_t, std::uint64_t> debt() const;
  /// There are some.
  bool owes() const;
  std::uint64_t debt_of(ChunkIndex chunk) const;
  /// Of `candidates`, free bytes and benefactors, those that a new image's chunks should lie on, so
  /// that whole stripes can be made of them.
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
  /// Chunks of one policy, by where they are.
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

  bool wants(ChunkIndex chunk) const;
  std::optional<Extent> good_copy(ChunkIndex chunk) const;
  void plan(const Redundancy& redundancy, Queues& queues);
  bool form(const Redundancy& redundancy, Queues& queues);
  bool form_where_room(const Redundancy& redundancy, Queues& queues, FailureDomains::Level level,
                       std::size_t most);
  void take_fronts(const std::vector<Chosen>& data, Queues& queues);
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
  void look_at_thinned();
  void look_at_stripe(const Stripe& stripe);
  bool is_needed(const Stripe& stripe) const;

  Service& service_;
  LostTargets lost_;
  std::map<std::uint32_t, Queues> queues_;  ///< by the number of the redundancy
  std::set<ChunkIndex> queued_;
  std::set<ChunkIndex> busy_;
  std::vector<ChunkIndex> again_;  ///< members of stripes that are to be made again
  std::map<std::uint64_t, Sent> sent_;
  std::uint64_t numbers_made_ = 0;
  bool short_of_space_ = false;
  bool room_ = false;     ///< the last look for a target has seen one that had it
  bool evicted_ = false;  ///< the last eviction asked for has given something
  Time evict_next_{};
  bool plan_posted_ = false;
};

}  // namespace stdchk::manager
