#include "manager/replication/parity_planner.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
// A short stripe is made when no further chunk came for so long.
constexpr Duration kGather = 100ms;
constexpr Duration kTogether = 10ms;  // chunks committed shortly after each other go together
constexpr std::size_t kSentMax = 256;
constexpr Duration kEvictAgain = 1s;
constexpr CopyTraffic::Rank kRank = 4;  // takes space like any new redundancy

using Domain = FailureDomains::Domain;
using Level = FailureDomains::Level;

/// Returns the widest level on which a stripe of at least two chunks is apart. Otherwise each
/// benefactor counts as a domain.
Level level_of(const FailureDomains& domains, const Redundancy& wanted) {
  return domains.level_for(wanted.parity + 2);
}

/// Returns the number of data chunks that a stripe can have; 0: no stripe is possible.
std::uint32_t data_of(const FailureDomains& domains, Level level, const Redundancy& wanted) {
  const std::size_t count = domains.count(level);
  if (count <= wanted.parity) return 0;
  return static_cast<std::uint32_t>(std::min<std::size_t>(wanted.data, count - wanted.parity));
}

}  // namespace

// ---- which chunks lack parity -----------------------------------------------------------------

std::optional<Extent> ParityPlanner::good_copy(ChunkIndex chunk) const {
  for (const Extent& copy : pool_.state().chunks().get(chunk).copies) {
    const auto found = pool_.benefactors().find(copy.benefactor);
    if (found == pool_.benefactors().end() || pool_.is_wrong(copy)) continue;
    const BenefactorStatus& status = found->second;
    const bool alive = status.info.state == msg::BenefactorState::kAlive && status.peer != nullptr;
    if (alive && !status.leaving) return copy;
  }
  return std::nullopt;
}

bool ParityPlanner::needs_parity(ChunkIndex chunk) const {
  const State& state = pool_.state();
  return state.chunks().exists(chunk) && state.chunks().redundancy(chunk).has_parity() &&
         state.chunks().undrained(chunk) > 0 && state.stripes().of(chunk) == nullptr &&
         busy_.count(chunk) == 0;
}

void ParityPlanner::examine(ChunkIndex chunk) {
  const State& state = pool_.state();
  if (!state.chunks().exists(chunk)) return;
  if (const Stripe* const stripe = state.stripes().of(chunk)) return examine_stripe(*stripe);
  if (!needs_parity(chunk) || queued_.count(chunk) > 0) return;
  const auto copy = good_copy(chunk);
  if (!copy) return;
  queues_[state.chunks().redundancy(chunk).number()][copy->benefactor].push_back(
      {chunk, pool_.now()});
  queued_.insert(chunk);
  if (plan_posted_) return;
  plan_posted_ = true;
  pool_.reactor().schedule_after(kTogether, [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    plan_posted_ = false;
    plan();
  });
}

/// Queues the used chunks for a new stripe if this stripe lost too many blocks, or has too many
/// unused chunks.
void ParityPlanner::examine_stripe(const Stripe& stripe) {
  const State& state = pool_.state();
  std::size_t there = 0;
  std::size_t unused = 0;
  ChunkIndex used = kNoChunk;
  for (std::size_t i = 0; i < stripe.members.size(); ++i) {
    const ChunkIndex member = stripe.members[i];
    if (pool_.is_readable(member)) ++there;
    if (i >= stripe.data) continue;
    if (!state.contents().is_used(member)) {
      ++unused;
    } else if (state.chunks().undrained(member) > 0 && good_copy(member)) {
      used = member;
    }
  }
  const bool broken = there < stripe.data;
  const bool thin = 2 * unused >= stripe.data || (short_of_space_ && unused > 0);
  if (used != kNoChunk && (broken || thin)) again_.push_back(used);
}

void ParityPlanner::examine_unused_stripe_members() {
  for (const ChunkIndex chunk : pool_.soft_state().take_unused_stripe_members()) {
    if (pool_.state().stripes().of(chunk) != nullptr) examine(chunk);
  }
  if (!short_of_space_) return;
  pool_.state().stripes().for_each([this](const Stripe& stripe) { examine_stripe(stripe); });
  short_of_space_ = false;
}

/// Returns true when a used chunk has no good copy, but this stripe can reconstruct it. When it has
/// a copy again, the stripe is examined anew.
bool ParityPlanner::is_needed(const Stripe& stripe) const {
  const State& state = pool_.state();
  const auto data_end = stripe.members.begin() + stripe.data;
  return std::any_of(stripe.members.begin(), data_end, [&](ChunkIndex member) {
    return state.contents().is_used(member) && state.chunks().undrained(member) > 0 &&
           !good_copy(member) && pool_.is_reconstructible(member);
  });
}

std::uint64_t ParityPlanner::debt_of(ChunkIndex chunk) const {
  const State& state = pool_.state();
  if (!state.chunks().exists(chunk) || state.chunks().undrained(chunk) == 0 ||
      state.stripes().of(chunk) != nullptr) {
    return 0;
  }
  const Redundancy wanted = state.chunks().redundancy(chunk);
  if (!wanted.has_parity()) return 0;
  return (std::uint64_t{state.chunks().length(chunk)} * wanted.parity + wanted.data - 1) /
         wanted.data;
}

bool ParityPlanner::lacks_parity() const {
  const auto lacks = [this](ChunkIndex chunk) { return debt_of(chunk) > 0; };
  return std::ranges::any_of(busy_, lacks) || std::ranges::any_of(queued_, lacks);
}

std::pair<std::uint64_t, std::uint64_t> ParityPlanner::debt() const {
  std::pair<std::uint64_t, std::uint64_t> out;
  const auto count = [&](ChunkIndex chunk) {
    const std::uint64_t bytes = debt_of(chunk);
    if (bytes == 0) return;
    ++out.first;
    out.second += bytes;
  };
  for (const ChunkIndex chunk : queued_) count(chunk);
  for (const ChunkIndex chunk : busy_) count(chunk);
  return out;
}

// ---- forming stripes --------------------------------------------------------------------------

void ParityPlanner::run() {
  lost_.ask();
  examine_unused_stripe_members();
  plan();
  std::vector<ChunkIndex> again;
  again.swap(again_);
  std::sort(again.begin(), again.end());
  again.erase(std::unique(again.begin(), again.end()), again.end());
  for (const ChunkIndex chunk : again) make_again(chunk);
}

void ParityPlanner::plan() {
  for (auto& [number, queues] : queues_) plan(*redundancy_of(number), queues);
}

void ParityPlanner::plan(const Redundancy& redundancy, Queues& queues) {
  while (sent_.size() < kSentMax && form(redundancy, queues)) {
  }
}

/// Removes chunks at the front that need no parity any more; a chunk that has moved waits at its
/// new benefactor.
void ParityPlanner::clean(BenefactorId benefactor, std::deque<Waiting>& queue) {
  while (!queue.empty()) {
    const ChunkIndex chunk = queue.front().chunk;
    const auto copy = needs_parity(chunk) ? good_copy(chunk) : std::nullopt;
    if (copy && copy->benefactor == benefactor) return;
    queue.pop_front();
    queued_.erase(chunk);
    if (copy) examine(chunk);
  }
}

/// Returns `width` neighbours on the circle that have the most waiting chunks.
std::vector<Domain> ParityPlanner::best_group(const std::map<Domain, std::size_t>& waiting,
                                              Level level, std::size_t width) const {
  const auto& circle = pool_.domains().circle(level);
  if (circle.size() <= width) return circle;
  const auto most =
      std::max_element(waiting.begin(), waiting.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto at = static_cast<std::size_t>(
      std::lower_bound(circle.begin(), circle.end(), most->first) - circle.begin());
  std::pair<std::size_t, std::size_t> best;
  std::size_t best_first = at;
  for (std::size_t back = 0; back < width; ++back) {
    const std::size_t first = (at + circle.size() - back) % circle.size();
    std::pair<std::size_t, std::size_t> here;  // domains with waiting chunks, number of chunks
    for (std::size_t i = 0; i < width; ++i) {
      const auto found = waiting.find(circle[(first + i) % circle.size()]);
      if (found == waiting.end()) continue;
      ++here.first;
      here.second += found->second;
    }
    if (here > best) {
      best = here;
      best_first = first;
    }
  }
  std::vector<Domain> out;
  for (std::size_t i = 0; i < width; ++i) out.push_back(circle[(best_first + i) % circle.size()]);
  return out;
}

/// Makes a stripe of waiting chunks. Returns false when none can be made now.
bool ParityPlanner::form(const Redundancy& redundancy, Queues& queues) {
  const FailureDomains& domains = pool_.domains();
  const Level level = level_of(domains, redundancy);
  const std::uint32_t most = data_of(domains, level, redundancy);
  if (most == 0) return false;
  std::map<Domain, std::size_t> waiting;
  std::map<Domain, BenefactorId> longest;  // the longest queue of each domain
  for (auto& [benefactor, queue] : queues) {
    clean(benefactor, queue);
    if (queue.empty() || !traffic_.is_free(benefactor, kRank)) continue;
    const Domain domain = domains.domain(benefactor, level);
    waiting[domain] += queue.size();
    BenefactorId& best = longest[domain];
    if (!best || queues.at(best).size() < queue.size()) best = benefactor;
  }
  if (waiting.empty()) return false;
  const auto group = best_group(waiting, level, most + redundancy.parity);
  std::vector<std::pair<std::size_t, BenefactorId>> from;
  for (const Domain domain : group) {
    const auto found = longest.find(domain);
    if (found != longest.end()) from.emplace_back(queues.at(found->second).size(), found->second);
  }
  std::sort(from.rbegin(), from.rend());
  if (from.size() > most) from.resize(most);
  bool waited = from.size() == most;
  for (const auto& [size, benefactor] : from) {
    waited |= pool_.now() - queues.at(benefactor).front().since >= kGather;
  }
  if (!waited) return false;
  std::vector<Chosen> data;
  for (const auto& [size, benefactor] : from) {
    const ChunkIndex chunk = queues.at(benefactor).front().chunk;
    data.push_back({chunk, *good_copy(chunk)});
  }
  if (!send(redundancy, data, level)) {
    return !room_ && !evicted_ && form_in_free_space(redundancy, queues, level, most);
  }
  pop_fronts(data, queues);
  return true;
}

/// Makes a stripe of up to `most` chunks that are first in their queues. Called when no benefactor
/// has room for the parity of the preferred group. Returns false when none of them has room; the
/// next call then tries other chunks first.
bool ParityPlanner::form_in_free_space(const Redundancy& redundancy, Queues& queues, Level level,
                                       std::size_t most) {
  std::vector<Chosen> fronts;
  for (auto& [benefactor, queue] : queues) {
    clean(benefactor, queue);
    if (queue.empty() || !traffic_.is_free(benefactor, kRank)) continue;
    fronts.push_back({queue.front().chunk, *good_copy(queue.front().chunk)});
  }
  const std::vector<Chosen> data = most_with_room(fronts, level, redundancy.parity, most);
  if (data.empty()) {
    for (auto& [benefactor, queue] : queues) {
      if (queue.empty()) continue;
      queue.push_back(queue.front());
      queue.pop_front();
    }
    return false;
  }
  if (!send(redundancy, data, level)) return false;
  pop_fronts(data, queues);
  return true;
}

/// Removes these chunks from their queues.
void ParityPlanner::pop_fronts(const std::vector<Chosen>& data, Queues& queues) {
  for (const Chosen& one : data) {
    queued_.erase(one.chunk);
    queues.at(one.at.benefactor).pop_front();
  }
}

/// Makes a new stripe of the used chunks of a stripe.
void ParityPlanner::make_again(ChunkIndex chunk) {
  const State& state = pool_.state();
  const Stripe* const stripe = state.chunks().exists(chunk) ? state.stripes().of(chunk) : nullptr;
  if (stripe == nullptr) return examine(chunk);
  if (is_needed(*stripe)) return;
  std::vector<Chosen> data;
  Redundancy wanted = state.chunks().redundancy(chunk);
  for (std::uint32_t i = 0; i < stripe->data; ++i) {
    const ChunkIndex member = stripe->members[i];
    if (busy_.count(member) > 0) return again_.push_back(chunk);
    if (!state.contents().is_used(member) || state.chunks().undrained(member) == 0) continue;
    if (const auto copy = good_copy(member)) data.push_back({member, *copy});
    if (is_stronger(state.chunks().redundancy(member), wanted)) {
      wanted = state.chunks().redundancy(member);
    }
  }
  if (data.empty() || data.size() == stripe->data || !wanted.has_parity()) return;
  if (!send(wanted, data, level_of(pool_.domains(), wanted))) again_.push_back(chunk);
}

/// Returns true when `id` has room for `parity` blocks of `each_bytes`.
bool ParityPlanner::has_room(BenefactorId id, std::uint64_t each_bytes,
                             std::uint32_t parity) const {
  return traffic_.can_take(id, each_bytes, kRank) && pool_.space().fits(id, each_bytes, parity);
}

/// Returns the largest choice, at most `most`, of these chunks in different domains for whose
/// parity a benefactor in another domain has room. The shortest chunks come first. Empty: there is
/// no room.
std::vector<ParityPlanner::Chosen> ParityPlanner::most_with_room(std::vector<Chosen> chunks,
                                                                 Level level, std::uint32_t parity,
                                                                 std::size_t most) const {
  const FailureDomains& domains = pool_.domains();
  const auto length_of = [this](const Chosen& one) {
    return pool_.state().chunks().length(one.chunk);
  };
  std::ranges::stable_sort(chunks, {}, length_of);
  std::vector<Chosen> best;
  for (const auto& [id, status] : pool_.benefactors()) {
    std::set<Domain> used{domains.domain(id, level)};
    std::vector<Chosen> here;
    for (const Chosen& one : chunks) {
      const Domain domain = domains.domain(one.at.benefactor, level);
      if (used.count(domain) > 0) continue;
      if (here.size() == most || !has_room(id, extent_bytes(length_of(one)), parity)) break;
      used.insert(domain);
      here.push_back(one);
    }
    if (here.size() > best.size()) best = std::move(here);
  }
  return best;
}

/// Chooses a benefactor near the data on the circle, in a domain without any of the data.
std::optional<BenefactorId> ParityPlanner::choose_target(const std::vector<Chosen>& data,
                                                         Level level, std::uint32_t parity,
                                                         std::uint64_t each_bytes) {
  const FailureDomains& domains = pool_.domains();
  std::set<Domain> used;
  for (const Chosen& one : data) used.insert(domains.domain(one.at.benefactor, level));
  std::optional<BenefactorId> best;
  std::pair<std::size_t, std::uint64_t> best_key;
  const std::size_t near = data.size() + limits::kStripeParityMax;
  room_ = false;
  for (const auto& [id, status] : pool_.benefactors()) {
    const Domain domain = domains.domain(id, level);
    if (used.count(domain) > 0 || !has_room(id, each_bytes, parity)) continue;
    room_ = true;
    if (!traffic_.is_free(id, kRank)) continue;
    // All benefactors within the group are equally good: the one with least load is taken.
    std::size_t distance = 0;
    for (const Chosen& one : data) {
      distance = std::max(
          distance, domains.distance(domain, domains.domain(one.at.benefactor, level), level));
    }
    const std::pair key{distance <= near ? 0 : distance, traffic_.load(id)};
    if (best && best_key <= key) continue;
    best = id;
    best_key = key;
  }
  return best;
}

bool ParityPlanner::send(const Redundancy& redundancy, std::vector<Chosen> data, Level level) {
  const ChunkTable& chunks = pool_.state().chunks();
  Sent sent;
  sent.parity = redundancy.parity;
  for (const Chosen& one : data) sent.length = std::max(sent.length, chunks.length(one.chunk));
  const std::uint64_t each = extent_bytes(sent.length);
  const auto target = choose_target(data, level, redundancy.parity, each);
  if (!target && !room_ && pool_.now() >= evict_next_) {
    evict_next_ = pool_.now() + kEvictAgain;
    evicted_ = hooks_.evict(each * redundancy.parity);
  }
  if (!target) return false;
  sent.target = *target;
  for (std::uint32_t i = 0; i < redundancy.parity; ++i) {
    const auto range = pool_.space().take(*target, each, each);
    STDCHK_ASSERT(range);
    sent.outputs.push_back(*range);
  }
  msg::BuildStripe request;
  request.data = static_cast<std::uint32_t>(data.size());
  request.parity = redundancy.parity;
  for (std::uint32_t i = 0; i < data.size(); ++i) {
    const Chunk chunk = chunks.get(data[i].chunk);
    traffic_.add_source(request, i, chunk, data[i].at);
    sent.bytes += chunk.length;
    traffic_.add_load(data[i].at.benefactor, chunk.length);
    pool_.hold(data[i].chunk);
    busy_.insert(data[i].chunk);
  }
  for (std::uint32_t i = 0; i < redundancy.parity; ++i) {
    request.outputs.push_back({request.data + i, sent.outputs[i].offset, sent.length, {}});
  }
  request.grants_before = GrantId{pool_.next_id()};
  traffic_.let_read(*target, request);
  traffic_.add_load(*target, sent.bytes);
  traffic_.pace(*target, sent.bytes);
  sent.data = std::move(data);
  const std::uint64_t number = ++numbers_made_;
  rpc::Peer* const peer = pool_.peer_of(*target);
  sent_.emplace(number, std::move(sent));
  peer->call(std::move(request), limits::kOperationDeadline,
             [this, number, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) done(number, answer);
             });
  return true;
}

// ---- answers ----------------------------------------------------------------------------------

void ParityPlanner::done(std::uint64_t number, const rpc::Answer& answer) {
  const Sent sent = std::move(sent_.extract(number).mapped());
  for (const Chosen& one : sent.data) {
    traffic_.take_load(one.at.benefactor, pool_.state().chunks().length(one.chunk));
  }
  traffic_.take_load(sent.target, sent.bytes);
  const auto* reply = answer ? std::get_if<msg::BuildStripe::Reply>(&*answer) : nullptr;
  if (reply == nullptr) {
    log::warning("benefactor {} did not say whether it has made parity", sent.target.value);
    traffic_.park(sent.target);
    lost_.add(sent.target, sent.outputs);
  } else {
    finish(sent, *reply);
  }
  let_go(sent);
  plan();
}

void ParityPlanner::finish(const Sent& sent, const msg::BuildStripe::Reply& reply) {
  const ChunkTable& chunks = pool_.state().chunks();
  for (const std::uint32_t i : reply.failed) {
    if (i < sent.data.size()) traffic_.park(sent.data[i].at.benefactor);
  }
  for (const std::uint32_t i : reply.corrupt) {
    if (i < sent.data.size()) scrubber_.queue_suspected(sent.data[i].chunk, sent.data[i].at);
  }
  if (!reply.corrupt.empty()) traffic_.park(sent.target);
  const bool replaces_needed = std::ranges::any_of(sent.data, [&](const Chosen& one) {
    const Stripe* const before = pool_.state().stripes().of(one.chunk);
    return before != nullptr && is_needed(*before);
  });
  MakeStripes::Stripe stripe;
  if (reply.crcs.size() == sent.outputs.size() && !replaces_needed) {
    for (const Chosen& one : sent.data) stripe.data.push_back(chunks.get(one.chunk));
    for (std::size_t i = 0; i < sent.outputs.size(); ++i) {
      stripe.parity.push_back(
          {{}, sent.length, reply.crcs[i], {{sent.target, sent.outputs[i].offset}}});
    }
    pool_.execute(MakeStripes{{stripe}}, [](const Result<Affected>&) {});
  }
  // Ranges that no chunk has taken are free: after the answer nothing writes to them.
  std::vector<ChunkIndex> taken;
  for (const Range& range : sent.outputs) {
    const ChunkIndex chunk = chunks.find_place({sent.target, range.offset});
    if (chunk == kNoChunk) {
      pool_.space().release(sent.target, range);
    } else {
      taken.push_back(chunk);
    }
  }
  for (const ChunkIndex chunk : taken) hooks_.examine(chunk);
}

void ParityPlanner::let_go(const Sent& sent) {
  for (const Chosen& one : sent.data) {
    busy_.erase(one.chunk);
    pool_.release(one.chunk);
    hooks_.examine(one.chunk);
  }
}

// ---- where new images go ----------------------------------------------------------------------

/// `candidates` are sorted by free bytes, the most first.
std::vector<BenefactorId> ParityPlanner::group_of(
    const Redundancy& redundancy,
    const std::vector<std::pair<std::uint64_t, BenefactorId>>& candidates) const {
  const FailureDomains& domains = pool_.domains();
  const Level level = level_of(domains, redundancy);
  const auto& circle = domains.circle(level);
  std::map<Domain, std::pair<std::uint64_t, BenefactorId>> best_of;
  for (const auto& one : candidates) best_of.emplace(domains.domain(one.second, level), one);
  const std::size_t width =
      std::min<std::size_t>(circle.size(), data_of(domains, level, redundancy) + redundancy.parity);
  std::vector<BenefactorId> best;
  std::uint64_t best_bytes = 0;
  for (std::size_t first = 0; first < circle.size(); ++first) {
    std::vector<BenefactorId> group;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const auto found = best_of.find(circle[(first + i) % circle.size()]);
      if (found == best_of.end()) continue;
      group.push_back(found->second.second);
      bytes += found->second.first;
    }
    if (bytes <= best_bytes) continue;
    best_bytes = bytes;
    best = std::move(group);
  }
  return best;
}

}  // namespace stdchk::manager
