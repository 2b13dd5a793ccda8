#include "manager/sessions/placement.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/policy/copy_scatter.h"
#include "transport/secure/grant_proof.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// A request waits this time for memory on its writer's node, then goes to another node.
constexpr Duration kHomeWait = 2s;
/// A home without drained memory is asked to evict at most once in this time.
constexpr Duration kHomeFull = 1s;

}  // namespace

Placement::Placement(Pool& pool, Neighbours neighbours) : pool_(pool), to_(neighbours) {}

void Placement::place(SessionRecord& session, const msg::Place& request, const Call& call) {
  for (const GrantId returned : request.returned) give_back(session, returned, true);
  place_when_possible(session.id, request, call);
}

// ---- choosing benefactors ---------------------------------------------------------------------

/// Returns the benefactors that may get grants, sorted by free bytes, the most first.
Placement::Candidates Placement::candidates_without(const std::vector<BenefactorId>& avoid) const {
  Candidates candidates;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.info.state != msg::BenefactorState::kAlive || !pool_.space().usable(id)) continue;
    if (status.leaving) continue;
    if (std::find(avoid.begin(), avoid.end(), id) != avoid.end()) continue;
    if (pool_.space().free_bytes(id) > 0) candidates.emplace_back(pool_.space().free_bytes(id), id);
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return candidates;
}

/// Chooses the stripe_width benefactors with most free space, except those to avoid. With parity,
/// chooses benefactors that can form stripes. With several places of a chunk, chooses sets whose
/// members may hold each other's copies.
void Placement::choose_stripe(SessionRecord& session, const Wanted& wanted) {
  session.stripe.sets.clear();
  if (!wanted.beside.empty()) {
    auto places = further_places(session, wanted.beside, wanted, {});
    if (!places.empty()) session.stripe.sets.push_back({wanted.beside.front(), std::move(places)});
    return;
  }
  if (session.stripe.node != 0) return choose_node(session, wanted);
  const Candidates candidates = candidates_without(wanted.avoid);
  if (session.places > 1) {
    session.stripe.sets = choose_sets(session, candidates, wanted);
    return;
  }
  std::vector<BenefactorId> group;
  if (const auto copies = redundancy_of(session.copies); copies && copies->has_parity()) {
    group = to_.parity.group_of(*copies, candidates);
  }
  const bool is_of_parity = !group.empty();
  for (const auto& [bytes, id] : candidates) {
    if (is_of_parity || group.size() == pool_.config().pool.stripe_width) break;
    group.push_back(id);
  }
  for (const BenefactorId id : group) session.stripe.sets.push_back({id, {id}});
}

void Placement::settle_home(SessionRecord& session) {
  StripeSets& stripe = session.stripe;
  const auto lends = [this](BenefactorId id) {
    const auto found = pool_.benefactors().find(id);
    return found != pool_.benefactors().end() && !found->second.leaving &&
           found->second.info.state == msg::BenefactorState::kAlive && pool_.space().usable(id);
  };
  if (stripe.node == 0 || (stripe.home && lends(stripe.home))) return;
  stripe.home = {};
  bool is_local = false;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (!lends(id)) continue;
    const bool local = pool_.domains().domain(id, FailureDomains::kHost) == stripe.node;
    if (local && !is_local) {
      stripe.home = id;
      is_local = true;
    } else if (!is_local && (!stripe.home ||
                             precedes_as_copy_target(BenefactorId{stripe.node}, id, stripe.home))) {
      stripe.home = id;
    }
  }
}

/// Returns true when the request should wait, because its home gives up memory of drained images.
bool Placement::waits_for_home(SessionRecord& session, const msg::Place& request) {
  settle_home(session);
  const BenefactorId home = session.stripe.home;
  const std::uint64_t unit = std::min(unit_of(request.unit_bytes), request.want_bytes);
  if (!home || !request.beside.empty() || std::ranges::count(request.avoid, home) > 0) return false;
  Eviction& eviction = evictions_[home];
  if (pool_.space().largest(home) < unit) to_.near.give_up();
  if (pool_.space().largest(home) >= unit || pool_.now() < eviction.not_before) return false;
  const bool under_way = pool_.now() - eviction.last < kHomeWait && pool_.journal().frees_extents();
  if (!under_way && !to_.evictor.evict(unit, home)) {
    eviction.not_before = pool_.now() + kHomeFull;
    return false;
  }
  if (!under_way) eviction.last = pool_.now();
  to_.totals.note_shortage(session);
  return session.short_since && pool_.now() - *session.short_since < kHomeWait;
}

/// Chooses the home with its peers. When the home has no room, chooses another benefactor.
void Placement::choose_node(SessionRecord& session, const Wanted& wanted) {
  settle_home(session);
  const std::uint64_t unit =
      std::min(unit_of(wanted.unit_bytes), (wanted.bytes + session.places - 1) / session.places);
  std::optional<BenefactorId> first;
  std::optional<BenefactorId> local;
  for (const auto& [bytes, id] : candidates_without(wanted.avoid)) {
    if (pool_.space().largest(id) < unit) continue;
    if (!first || id == session.stripe.home) first = id;
    if (local || pool_.domains().domain(id, FailureDomains::kHost) != session.stripe.node) continue;
    local = id;
  }
  if (!first) return;
  if (first != session.stripe.home && local) first = local;
  PlaceSet set{*first, {*first}};
  const auto further = further_places(session, set.members, wanted, {});
  set.members.insert(set.members.end(), further.begin(), further.end());
  session.stripe.sets.push_back(std::move(set));
}

/// Chooses sets of `places` benefactors. Together they use about stripe_width benefactors, each
/// equally often. Falls back to sets with too few members when no full set exists.
std::vector<PlaceSet> Placement::choose_sets(const SessionRecord& session,
                                             const Candidates& candidates, const Wanted& wanted) {
  const std::uint32_t places = session.places;
  const std::size_t width = pool_.config().pool.stripe_width;
  // With few candidates, each candidate becomes a set's first member.
  const bool all_first = candidates.size() <= width;
  const std::size_t most = all_first ? width : (width + places - 1) / places;
  std::map<BenefactorId, std::size_t> uses;
  std::set<BenefactorId> firsts;
  std::vector<PlaceSet> whole;
  std::vector<PlaceSet> small;
  while (whole.size() < most && small.size() < most && firsts.size() < candidates.size()) {
    std::optional<BenefactorId> first;
    for (const auto& [bytes, id] : candidates) {
      if (!firsts.contains(id) && (!first || uses[id] < uses[*first])) first = id;
    }
    firsts.insert(*first);
    PlaceSet set{*first, {*first}};
    const auto further = further_places(session, set.members, wanted, uses);
    set.members.insert(set.members.end(), further.begin(), further.end());
    if (set.members.size() < places) {
      small.push_back(std::move(set));
      continue;
    }
    for (const BenefactorId id : further) ++uses[id];
    uses[*first] += all_first ? 0 : 1;
    whole.push_back(std::move(set));
  }
  return whole.empty() ? small : whole;
}

/// Adds benefactors that may hold copies of chunks of `held`: the least used, then the most free.
std::vector<BenefactorId> Placement::further_places(
    const SessionRecord& session, std::vector<BenefactorId> held, const Wanted& wanted,
    const std::map<BenefactorId, std::size_t>& uses) {
  const std::uint32_t places = session.places;
  std::vector<BenefactorId> out;
  const auto cost = [&](BenefactorId id) {
    const auto used = uses.find(id);
    return std::make_pair(used == uses.end() ? 0 : used->second, ~pool_.space().free_bytes(id));
  };
  while (held.size() < places) {
    const auto takers = to_.copies.copy_targets_besides(held, places, unit_of(wanted.unit_bytes),
                                                        wanted.avoid, session.stripe.node != 0);
    if (takers.empty()) break;
    out.push_back(*std::ranges::min_element(takers, {}, cost));
    held.push_back(out.back());
  }
  return out;
}

/// Returns the bytes that a session may take at once: half of the free space, divided among all
/// writers. So grants ahead of need shrink as the pool fills, and every writer still gets some.
std::uint64_t Placement::fair_share(const SessionRecord& session) const {
  std::set<BenefactorId> members;
  for (const PlaceSet& set : session.stripe.sets) {
    members.insert(set.members.begin(), set.members.end());
  }
  std::uint64_t free_bytes = 0;
  for (const BenefactorId id : members) free_bytes += pool_.space().free_bytes(id);
  return free_bytes / (2 * (1 + to_.sessions.other_writers(session)));
}

/// Returns the smallest range worth a grant: the space of one chunk of the client, whose chunks may
/// be larger or smaller than the pool's.
std::uint64_t Placement::unit_of(std::uint64_t unit_bytes) const {
  const std::uint64_t most = extent_bytes(limits::kChunkBytesMax);
  const std::uint64_t unit = std::min(unit_bytes, most);
  if (unit == 0) return extent_bytes(pool_.config().pool.chunk_bytes);
  return (unit + limits::kExtentAlignment - 1) / limits::kExtentAlignment *
         limits::kExtentAlignment;
}

std::vector<Grant> Placement::grants(SessionRecord& session, const Wanted& wanted) {
  std::vector<Grant> out;
  const std::uint64_t unit = unit_of(wanted.unit_bytes);
  const std::uint64_t most = limits::kGrantBytesDefault / unit * unit;
  choose_stripe(session, wanted);
  std::size_t members = 0;
  for (const PlaceSet& set : session.stripe.sets) members += set.members.size();
  if (members == 0) return out;
  const std::uint64_t want_bytes = std::min({wanted.bytes, limits::kGrantsPerReplyMax * most,
                                             std::max(unit * session.places, fair_share(session))});
  // Whole chunks, equally many on each benefactor of the stripe.
  const std::uint64_t share = (want_bytes + members - 1) / members;
  const std::uint64_t whole = std::clamp((share + unit - 1) / unit * unit, unit, most);
  std::uint64_t left = want_bytes;
  std::size_t refused = 0;
  while (left > 0 && refused < session.stripe.sets.size() &&
         out.size() + session.places <= limits::kGrantsPerReplyMax) {
    const PlaceSet& set = session.stripe.sets[session.stripe.next++ % session.stripe.sets.size()];
    const std::uint64_t each = (left + set.members.size() - 1) / set.members.size();
    const std::uint64_t want =
        each < unit ? each : std::min(whole, (each + unit - 1) / unit * unit);
    const std::size_t before = out.size();
    grant_set(session, set, want, unit, out);
    refused = out.size() == before ? refused + 1 : 0;
    for (std::size_t i = before; i < out.size(); ++i) left -= std::min(left, out[i].length);
  }
  if (!out.empty()) to_.sessions.note_grant(pool_.now());
  return out;
}

/// Grants a range on each member of the set.
void Placement::grant_set(SessionRecord& session, const PlaceSet& set, std::uint64_t want_bytes,
                          std::uint64_t unit, std::vector<Grant>& out) {
  const bool together = session.places > 1;
  const auto level = pool_.domains().level_for(session.places);
  for (const BenefactorId id : set.members) {
    const auto range = pool_.space().take(id, want_bytes, std::min(want_bytes, unit));
    if (!range) continue;
    Grant grant{GrantId{pool_.next_id()},
                id,
                range->offset,
                range->length,
                together ? set.first : BenefactorId{},
                together ? pool_.domains().domain(id, level) : 0};
    transport::secure::prove(pool_.benefactors().at(id).grant_key, session.client, grant);
    to_.sessions.add_grant(session, grant);
    out.push_back(grant);
  }
}

void Placement::place_when_possible(SessionId id, msg::Place request, const Call& call) {
  SessionRecord& session = to_.sessions.at(id);
  msg::Place::Reply reply;
  if (request.want_bytes > 0 && waits_for_home(session, request)) {
    request.returned.clear();
    waiting_.push_back({id, std::move(request), call});
    return;
  }
  if (request.want_bytes > 0) {
    reply.grants =
        grants(session, {request.want_bytes, request.unit_bytes, request.avoid, request.beside});
    if (!reply.grants.empty()) {
      to_.totals.end_shortage(session);
    } else if (request.beside.empty()) {
      to_.totals.note_shortage(session);
      if (to_.replaced.give_up()) {
        // The space of these files is free when the commands that replaced them are durable.
        request.returned.clear();
        waiting_.push_back({id, std::move(request), call});
        return;
      }
      // Space may come later by eviction, compaction or a fence; until then the request waits.
      if (!make_room(id, request.want_bytes, unit_of(request.unit_bytes)) ||
          pool_.now() >= call.deadline()) {
        return call.fail(Code::kNoSpace, "place");
      }
      request.returned.clear();
      waiting_.push_back({id, std::move(request), call});
      return;
    }
  }
  settle_home(session);
  for (std::uint32_t i = 0; i < request.chunks.size(); ++i) {
    const auto& wanted = request.chunks[i];
    const ChunkIndex found =
        pool_.state().chunks().find(wanted.name, wanted.length, session.stripe.home);
    if (found == kNoChunk) continue;
    Chunk existing = pool_.state().chunks().get(found);
    // A chunk whose benefactors do not answer may be lost. The client still has the bytes and
    // stores them anew.
    if (!pool_.is_reachable(existing.copies)) continue;
    if (session.holds.insert(found).second) pool_.soft_state().hold(found);
    reply.existing.push_back({i, std::move(existing)});
  }
  call.answer(std::move(reply));
}

/// Retries requests that wait for space. A request that finds none waits on, until shortly before
/// its deadline.
void Placement::retry() {
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (Waiting& one : waiting) {
    if (!to_.sessions.contains(one.session)) {
      one.call.fail(Code::kFenced, "place");
    } else if (pool_.now() + limits::kHeartbeatInterval >= one.call.deadline()) {
      one.call.fail(Code::kNoSpace, "place");
    } else {
      place_when_possible(one.session, std::move(one.request), one.call);
    }
  }
}

/// Returns true when space may become free soon. Sources are near copies, eviction, the check before it,
/// compaction, fences, commands becoming durable, and draining a set that drain-every left out.
bool Placement::make_room(SessionId asking, std::uint64_t want_bytes, std::uint64_t unit_bytes) {
  if (to_.near.give_up()) return true;
  to_.parity.need_space();
  if (pool_.journal().frees_extents() || to_.garbage.is_freeing()) return true;
  if (to_.sessions.resuming() || to_.fences.is_waiting()) return true;
  if (to_.evictor.evict(want_bytes)) return true;
  if (to_.compactor.wanted(unit_bytes)) return true;
  if (to_.sets.want_oldest()) return true;
  // Other writers may return unused grants.
  return to_.evictor.is_blocked() || to_.sessions.other_writers(to_.sessions.at(asking)) > 0;
}

void Placement::give_back(SessionRecord& session, GrantId id, bool clean) {
  const auto found = session.grants.find(id);
  if (found == session.grants.end()) return;
  const GrantRecord& record = found->second;
  const bool quarantine = !clean || record.tainted;
  record.for_each_unused([&](std::uint64_t offset, std::uint64_t bytes) {
    if (quarantine) {
      pool_.space().quarantine(record.grant.benefactor, {offset, bytes}, session.client);
    } else {
      pool_.space().release(record.grant.benefactor, {offset, bytes});
    }
  });
  to_.sessions.drop_grant(session, found);
}

}  // namespace stdchk::manager
