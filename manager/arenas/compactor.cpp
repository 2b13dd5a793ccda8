#include "manager/arenas/compactor.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr Duration kWanted = 5s;
constexpr std::uint64_t kStepBytes = 64 * limits::kMiB;
constexpr std::size_t kMovesMax = 1024;
constexpr std::size_t kWindowsTried = 200;
// The number of grants that should fit afterwards, if possible.
constexpr std::uint64_t kUnitsWanted = 8;

struct Placed {
  std::uint64_t offset;
  std::uint64_t bytes;
  ChunkIndex chunk;
};

void add_move(const State& state, const Placed& from, std::uint64_t to, CompactionPlan& plan) {
  const Chunk chunk = state.chunks().get(from.chunk);
  plan.moves.push_back({from.offset, to, chunk.length, chunk.crc});
  plan.chunks.push_back(from.chunk);
}

/// Returns the extents that chunks have in this arena, by offset.
std::vector<Placed> extents_of(const State& state, BenefactorId benefactor) {
  std::vector<Placed> out;
  state.chunks().for_each([&](ChunkIndex index) {
    if (!state.chunks().has_copies(index)) return;
    for (const Extent& copy : state.chunks().get(index).copies) {
      if (copy.benefactor != benefactor) continue;
      out.push_back({copy.offset, extent_bytes(state.chunks().length(index)), index});
    }
  });
  std::sort(out.begin(), out.end(),
            [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
  return out;
}

/// A run of adjacent extents and holes. It would be one free range if its extents were elsewhere.
struct Window {
  std::size_t first = 0;  ///< extents [first, last)
  std::size_t last = 0;
  Range range;
  std::uint64_t used = 0;
};

/// Returns the windows of at least `need` bytes, each as short as possible, the cheapest first.
std::vector<Window> windows_of(const std::vector<Placed>& extents, std::uint64_t arena_bytes,
                               std::uint64_t need) {
  const auto begin_of = [&](std::size_t i) {
    return i == 0 ? 0 : extents[i - 1].offset + extents[i - 1].bytes;
  };
  const auto end_of = [&](std::size_t i) {
    return i == extents.size() ? arena_bytes : extents[i].offset;
  };
  std::vector<Window> out;
  std::size_t last = 0;
  std::uint64_t used = 0;
  for (std::size_t first = 0; first <= extents.size(); ++first) {
    while (last < extents.size() && end_of(last) - begin_of(first) < need) {
      used += extents[last++].bytes;
    }
    const Range range{begin_of(first), end_of(last) - begin_of(first)};
    if (range.length < need) break;
    out.push_back({first, last, range, used});
    if (first < last) {
      used -= extents[first].bytes;
    } else {
      last = first + 1;
    }
  }
  std::sort(out.begin(), out.end(),
            [](const Window& a, const Window& b) { return a.used < b.used; });
  return out;
}

/// Finds targets outside the window for all its extents. Takes none of them when one extent finds
/// no target.
bool empty_window(const State& state, Space& space, BenefactorId benefactor,
                  const std::vector<Placed>& extents, const Window& window, CompactionPlan& plan) {
  std::vector<Range> holes;
  std::uint64_t at = window.range.offset;
  for (std::size_t i = window.first; i <= window.last; ++i) {
    const std::uint64_t end = i == window.last ? window.range.end() : extents[i].offset;
    if (end > at) holes.push_back({at, end - at});
    if (i < window.last) at = extents[i].offset + extents[i].bytes;
  }
  std::vector<Range> reserved;
  bool fits = true;
  for (const Range& hole : holes) {
    // A range that is neither free nor an extent is granted or quarantined: the
    // window cannot be emptied.
    if (!space.take_exactly(benefactor, hole)) {
      fits = false;
      break;
    }
    reserved.push_back(hole);
  }
  std::vector<Placed> largest_first(extents.begin() + static_cast<std::ptrdiff_t>(window.first),
                                    extents.begin() + static_cast<std::ptrdiff_t>(window.last));
  std::sort(largest_first.begin(), largest_first.end(),
            [](const Placed& a, const Placed& b) { return a.bytes > b.bytes; });
  std::vector<Range> targets;
  for (const Placed& extent : largest_first) {
    const auto target = fits ? space.take(benefactor, extent.bytes, extent.bytes) : std::nullopt;
    fits = target.has_value();
    if (!fits) break;
    targets.push_back(*target);
  }
  for (const Range& hole : reserved) space.release(benefactor, hole);
  if (!fits) {
    for (const Range& target : targets) space.release(benefactor, target);
    return false;
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    add_move(state, largest_first[i], targets[i].offset, plan);
  }
  return true;
}

}  // namespace

CompactionPlan plan_compaction(const State& state, Space& space, BenefactorId benefactor,
                               std::uint64_t need_bytes, std::uint64_t want_bytes) {
  CompactionPlan plan;
  const std::vector<Placed> extents = extents_of(state, benefactor);
  const std::uint64_t arena_bytes = space.arena_bytes(benefactor);
  for (std::uint64_t bytes = want_bytes;; bytes = std::max(need_bytes, bytes / 2)) {
    std::size_t tried = 0;
    for (const Window& window : windows_of(extents, arena_bytes, bytes)) {
      if (window.used > kStepBytes || window.last - window.first > kMovesMax) break;
      if (window.used == 0) continue;  // nothing to move, or grants that cannot move
      if (++tried > kWindowsTried) break;
      if (empty_window(state, space, benefactor, extents, window, plan)) return plan;
    }
    if (bytes <= need_bytes) return plan;
  }
}

/// Finds an arena whose free bytes could hold a grant although no single range can.
std::optional<BenefactorId> Compactor::candidate(std::uint64_t unit) const {
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.peer == nullptr || !pool_.space().usable(id)) continue;
    const std::uint64_t free = pool_.space().free_bytes(id);
    if (free >= 2 * unit && free >= status.info.arena_bytes / 20 &&
        pool_.space().largest(id) < unit) {
      return id;
    }
  }
  return std::nullopt;
}

bool Compactor::wanted(std::uint64_t unit_bytes) {
  if (!running_ && !candidate(unit_bytes)) return false;
  unit_ = pool_.now() > wanted_until_ ? unit_bytes : std::max(unit_, unit_bytes);
  wanted_until_ = pool_.now() + kWanted;
  return true;
}

void Compactor::run() {
  ask_lost();
  if (running_ || pool_.now() > wanted_until_ || pool_.now() < next_) return;
  const std::uint64_t unit = unit_;
  const auto benefactor = candidate(unit);
  if (!benefactor) return;
  CompactionPlan plan =
      plan_compaction(pool_.state(), pool_.space(), *benefactor, unit, kUnitsWanted * unit);
  if (plan.moves.empty()) {
    wanted_until_ = {};
    return;
  }
  // The holds keep the moved extents from being freed: their place could be
  // granted to another client.
  for (const ChunkIndex chunk : plan.chunks) pool_.hold(chunk);
  running_ = true;
  for (const auto& move : plan.moves) {
    targets_.emplace_back(*benefactor, Range{move.to_offset, extent_bytes(move.length)});
  }
  msg::MoveExtents request{plan.moves, GrantId{pool_.next_id()}};
  pool_.peer_of(*benefactor)
      ->call(std::move(request), limits::kOperationDeadline,
             [this, alive = pool_.alive(), id = *benefactor,
              plan = std::move(plan)](rpc::Answer answer) mutable {
               if (alive.expired()) return;
               const auto* reply =
                   answer ? std::get_if<msg::MoveExtents::Reply>(&*answer) : nullptr;
               moved(id, std::move(plan), reply);
             });
}

void Compactor::moved(BenefactorId benefactor, CompactionPlan plan,
                      const msg::MoveExtents::Reply* reply) {
  targets_.clear();
  MoveChunks command{benefactor, {}};
  for (std::uint32_t i = 0; i < plan.moves.size(); ++i) {
    const bool failed = reply == nullptr || std::find(reply->failed.begin(), reply->failed.end(),
                                                      i) != reply->failed.end();
    if (!failed) command.moves.push_back({plan.moves[i].from_offset, plan.moves[i].to_offset});
  }
  if (reply == nullptr || command.moves.empty()) {
    log::warning("compaction of benefactor {} failed", benefactor.value);
    next_ = pool_.now() + kWanted;
    running_ = false;
    if (reply != nullptr) return settle(benefactor, plan);
    Lost& lost = lost_[++lost_made_];
    lost.benefactor = benefactor;
    for (const auto& move : plan.moves) {
      lost.targets.push_back({move.to_offset, extent_bytes(move.length)});
    }
    for (const ChunkIndex chunk : plan.chunks) pool_.release(chunk);
    return;
  }
  pool_.execute(std::move(command), [this](const Result<Affected>&) {
    running_ = false;
    run();
  });
  settle(benefactor, plan);
}

/// A benefactor serves move requests in order. When it answers a later request, the lost one has
/// ended, and no chunk refers to its targets.
void Compactor::ask_lost() {
  for (auto& [number, lost] : lost_) {
    rpc::Peer* peer = pool_.peer_of(lost.benefactor);
    if (peer == nullptr || pool_.now() < lost.next) continue;
    lost.next = pool_.now() + limits::kOperationDeadline + kWanted;
    peer->call(msg::MoveExtents{}, limits::kOperationDeadline,
               [this, alive = pool_.alive(), key = number](const rpc::Answer& answer) {
                 if (alive.expired()) return;
                 Lost& asked = lost_.at(key);
                 asked.next = pool_.now() + kWanted;
                 if (!answer) return;
                 for (const Range& target : asked.targets) {
                   pool_.space().release(asked.benefactor, target);
                 }
                 lost_.erase(key);
               });
  }
}

/// Called when the command is applied, or when no move succeeded. Frees the targets that no chunk
/// uses now; the others belong to their chunks.
void Compactor::settle(BenefactorId benefactor, const CompactionPlan& plan) {
  for (std::size_t i = 0; i < plan.moves.size(); ++i) {
    const Extent target{benefactor, plan.moves[i].to_offset};
    const auto copies = pool_.state().chunks().get(plan.chunks[i]).copies;
    if (std::find(copies.begin(), copies.end(), target) != copies.end()) continue;
    pool_.space().release(benefactor, {target.offset, extent_bytes(plan.moves[i].length)});
  }
  for (const ChunkIndex chunk : plan.chunks) pool_.release(chunk);
}

}  // namespace stdchk::manager
