#include "manager/replication/copy_planner.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kBatchBytes = 8 * limits::kMiB;
constexpr std::size_t kBatchItems = 256;
constexpr std::size_t kExaminedMax = 1024;   // chunks examined in one turn
constexpr ChunkIndex kScannedMax = 1 << 13;  // table entries visited in one turn
constexpr Duration kTogether = 10ms;
constexpr Duration kEvictAgain = 1s;
constexpr CopyTraffic::Rank kRankLost = 255;
constexpr CopyTraffic::Rank kRankSole = CopyTraffic::kRankSole;

auto on(const std::vector<Extent>& copies, BenefactorId benefactor) {
  return std::find_if(copies.begin(), copies.end(),
                      [&](const Extent& copy) { return copy.benefactor == benefactor; });
}

bool contains(const std::vector<Extent>& copies, BenefactorId benefactor) {
  return on(copies, benefactor) != copies.end();
}

}  // namespace

CopyPlanner::CopyPlanner(Pool& pool, CopyTraffic& traffic, ParityPlanner& parity,
                         Scrubber& scrubber, std::function<bool(std::uint64_t)> evict)
    : pool_(pool),
      traffic_(traffic),
      parity_(parity),
      scrubber_(scrubber),
      evict_(std::move(evict)),
      lost_images_(pool, [this](const VersionData& version) { return lost_bytes(version); }),
      unanswered_copies_(pool, msg::CopyExtents{}),
      unanswered_stripes_(pool, msg::BuildStripe{}),
      targets_(pool, traffic) {}

// ---- which chunks lack copies -----------------------------------------------------------------

CopyPlanner::View CopyPlanner::plain_view_of(ChunkIndex chunk) const {
  View view;
  view.wanted = pool_.state().chunks().wanted(chunk);
  view.whole = bool{pool_.state().chunks().home(chunk)};
  for (const Extent& copy : pool_.state().chunks().get(chunk).copies) {
    const auto found = pool_.benefactors().find(copy.benefactor);
    if (pool_.is_wrong(copy)) {
      view.bad.push_back(copy);
    } else if (found == pool_.benefactors().end() ||
               found->second.info.state == msg::BenefactorState::kGone) {
      view.gone.push_back(copy);
    } else {
      if (found->second.peer != nullptr) view.sources.push_back(copy);
      (found->second.leaving ? view.leaving : view.good).push_back(copy);
    }
  }
  return view;
}

/// Returns an empty view when the chunk is gone or was evicted: it needs no copies.
CopyPlanner::View CopyPlanner::view_of(ChunkIndex chunk) const {
  const ChunkTable& chunks = pool_.state().chunks();
  if (!chunks.exists(chunk) || !chunks.has_copies(chunk)) return {};
  View view = plain_view_of(chunk);
  // A leaving benefactor will not return, and a silent one may not:
  // together they may leave no copy.
  std::vector<Extent> silent;
  const auto is_reachable = [this](const Extent& copy) { return pool_.is_reachable(copy); };
  if (!view.leaving.empty() && std::ranges::none_of(view.good, is_reachable))
    view.good.swap(silent);
  const Stripe* const stripe = pool_.state().stripes().of(chunk);
  const std::size_t width =
      std::max<std::size_t>(view.wanted, stripe == nullptr ? 1 : stripe->members.size());
  view.level = pool_.domains().level_for(width);
  std::set<FailureDomains::Domain> taken;
  if (stripe != nullptr) {
    for (const ChunkIndex member : stripe->members) {
      if (member == chunk) {
        // Earlier blocks of the stripe keep their domain. This block must move to a free domain.
        view.avoided = taken;
        continue;
      }
      for (const Extent& copy : plain_view_of(member).good) {
        taken.insert(pool_.domains().domain(copy.benefactor, view.level));
        break;
      }
    }
  }
  // A second copy in the same domain does not count: it must move.
  std::vector<Extent> extra;
  if (view.good.size() > 1 || !view.avoided.empty()) {
    std::set<FailureDomains::Domain> domains = view.avoided;
    for (const Extent& copy : std::exchange(view.good, {})) {
      const bool first = domains.insert(pool_.domains().domain(copy.benefactor, view.level)).second;
      (first ? view.good : extra).push_back(copy);
    }
  }
  view.avoided.merge(taken);
  view.bad.insert(view.bad.end(), view.gone.begin(), view.gone.end());
  view.bad.insert(view.bad.end(), view.leaving.begin(), view.leaving.end());
  view.bad.insert(view.bad.end(), silent.begin(), silent.end());
  view.bad.insert(view.bad.end(), extra.begin(), extra.end());
  return view;
}

/// Returns how many blocks of a stripe can be read, and how many are in domains of their own.
std::pair<std::size_t, std::size_t> CopyPlanner::blocks_of(const Stripe& stripe) const {
  std::pair<std::size_t, std::size_t> out;
  for (const ChunkIndex member : stripe.members) {
    const View view = view_of(member);
    out.first += view.sources.empty() ? 0 : 1;
    out.second += view.good.empty() ? 0 : 1;
  }
  return out;
}

std::optional<CopyPlanner::Rank> CopyPlanner::rank_of(ChunkIndex chunk, const View& view) const {
  if (view.good.size() >= view.wanted) return std::nullopt;
  const State& state = pool_.state();
  const Stripe* const stripe = state.stripes().of(chunk);
  const bool drained = stripe == nullptr ? state.chunks().undrained(chunk) == 0
                                         : state.contents().may_be_lost(*stripe);
  // The number of losses that are fatal; 0: only copies on leaving benefactors are left.
  std::size_t outlives = view.good.size();
  if (view.good.empty() && view.leaving.empty()) {
    const auto [readable, apart] =
        stripe == nullptr ? std::pair<std::size_t, std::size_t>{} : blocks_of(*stripe);
    const bool is_reconstructible = stripe != nullptr && readable >= stripe->data;
    if (!is_reconstructible && view.sources.empty()) {
      // The chunk is not lost while a silent benefactor may come back. After a restart of the
      // manager all benefactors come back.
      if (pool_.is_readable(chunk) || pool_.is_reconstructible(chunk)) {
        return static_cast<Rank>(kRankSole + (drained ? 1 : 0));
      }
      // When parity is lost with its data, only the data counts as lost.
      const bool parity = stripe != nullptr && stripe->number_of(chunk) >= stripe->data;
      return drained || parity ? std::nullopt : std::optional<Rank>(kRankLost);
    }
    outlives = 1 + (stripe == nullptr || apart < stripe->data ? 0 : apart - stripe->data);
  }
  return static_cast<Rank>(2 * outlives + (drained ? 1 : 0));
}

void CopyPlanner::update(ChunkIndex chunk) {
  parity_.examine(chunk);
  const View view = view_of(chunk);
  if (!surplus_copies(view).empty()) surplus_.insert(chunk);
  for (std::size_t i = 1; view.whole && i < view.good.size(); ++i) {
    targets_.order().note_whole(view.good.front().benefactor, view.good[i].benefactor);
  }
  const auto rank = rank_of(chunk, view);
  const bool was_lost = queue_.rank(chunk) == kRankLost;
  // Also after an earlier loss: this index may have belonged to another chunk.
  if (was_lost || rank == kRankLost) lost_images_.examine_soon();
  queue_.set(chunk, rank);
}

/// Updates all blocks of the stripe: a change of one changes the domains open to the others.
void CopyPlanner::update_stripe(ChunkIndex chunk) {
  const Stripe* const stripe = pool_.state().stripes().of(chunk);
  if (stripe == nullptr) return update(chunk);
  for (const ChunkIndex member : stripe->members) update(member);
}

void CopyPlanner::examine(ChunkIndex chunk) {
  update_stripe(chunk);
  plan_soon();
}

void CopyPlanner::examine(const VersionData& version) {
  std::set<const Stripe*> seen;
  for (const PackedSlice& slice : version.slices) {
    const Stripe* const stripe = pool_.state().stripes().of(slice.chunk);
    if (stripe == nullptr || seen.insert(stripe).second) update_stripe(slice.chunk);
  }
  plan_soon();
}

/// Waits 10 ms, so that chunks committed shortly after each other go together.
void CopyPlanner::plan_soon() {
  if (plan_posted_ || (queue_.empty() && surplus_.empty())) return;
  plan_posted_ = true;
  pool_.reactor().schedule_after(kTogether, [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    plan_posted_ = false;
    plan();
  });
}

void CopyPlanner::mark_wrong(ChunkIndex chunk, const Extent& extent) {
  pool_.mark_wrong(extent);
  update_stripe(chunk);
}

void CopyPlanner::benefactors_changed() {
  scan_at_ = 0;
  targets_.order().benefactors_changed();
}

void CopyPlanner::scan() {
  if (scan_at_ == kNoChunk) return;
  scan_at_ = pool_.state().chunks().visit_some(scan_at_, kScannedMax,
                                               [this](ChunkIndex chunk) { update(chunk); });
  if (scan_at_ == kNoChunk || scan_posted_) return;
  scan_posted_ = true;
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    scan_posted_ = false;
    scan();
  });
}

CopyPlanner::Figures CopyPlanner::figures() const {
  Figures out = made_;
  const ChunkTable& chunks = pool_.state().chunks();
  for (const auto& [rank, chunk] : queue_.in_order()) {
    const View view = view_of(chunk);
    const auto now = rank_of(chunk, view);
    if (!now) continue;
    if (*now == kRankLost) {
      ++out.lost_chunks;
      continue;
    }
    ++out.debt_chunks;
    out.debt_bytes += (view.wanted - view.good.size()) * std::uint64_t{chunks.length(chunk)};
  }
  const auto [parity_chunks, parity_bytes] = parity_.debt();
  out.debt_chunks += parity_chunks;
  out.debt_bytes += parity_bytes;
  return out;
}

bool CopyPlanner::lacks_undrained_copies() {
  const auto undrained = [](Rank rank) { return rank == kRankLost || rank % 2 == 0; };
  const CopyQueue::Order& order = queue_.in_order();
  auto at = order.begin();
  for (std::size_t examined = 0; at != order.end() && examined < kExaminedMax;) {
    const auto [rank, chunk] = *at;
    if (undrained(rank)) {
      const auto now = rank_of(chunk, view_of(chunk));
      if (now && undrained(*now)) return true;
      ++examined;
      update(chunk);
      at = order.lower_bound({rank, chunk});
    } else {
      at = order.upper_bound({rank, kNoChunk});
    }
  }
  return at != order.end();
}

/// Returns the bytes that the chunk lacks to have `copies` copies.
std::uint64_t CopyPlanner::debt_of(ChunkIndex chunk, std::size_t copies,
                                   std::set<ChunkIndex>& seen) const {
  const ChunkTable& chunks = pool_.state().chunks();
  if (!chunks.has_copies(chunk) || !seen.insert(chunk).second) return 0;
  const std::size_t good = view_of(chunk).good.size();
  return good >= copies ? 0 : (copies - good) * std::uint64_t{chunks.length(chunk)};
}

msg::GetDebt::Reply CopyPlanner::debt_of(const VersionData& version) const {
  msg::GetDebt::Reply out;
  const Redundancy wanted = redundancy_of(version.copies).value_or(Redundancy{});
  std::set<ChunkIndex> seen;
  for (const PackedSlice& slice : version.slices) {
    std::uint64_t bytes = seen.count(slice.chunk) > 0 ? 0 : parity_.debt_of(slice.chunk);
    bytes += debt_of(slice.chunk, wanted.copies, seen);
    const Stripe* const stripe = pool_.state().stripes().of(slice.chunk);
    if (wanted.has_parity() && stripe != nullptr) {
      for (const ChunkIndex member : stripe->members) bytes += debt_of(member, 1, seen);
    }
    out.chunks += bytes > 0 ? 1 : 0;
    out.bytes += bytes;
  }
  const auto lends = [](const auto& each) {
    return each.second.info.state != msg::BenefactorState::kGone && !each.second.leaving;
  };
  const auto& all = pool_.benefactors();
  out.impossible = std::count_if(all.begin(), all.end(), lends) < wanted.losses() + 1;
  return out;
}

bool CopyPlanner::lacks_copies(const VersionData& version) const {
  if (scan_at_ != kNoChunk) return true;  // the examination of all chunks is not complete
  const StripeTable& stripes = pool_.state().stripes();
  const auto listed = [this](ChunkIndex chunk) { return queue_.is_queued(chunk); };
  return std::ranges::any_of(version.slices, [&](const PackedSlice& slice) {
    if (listed(slice.chunk) || parity_.debt_of(slice.chunk) > 0) return true;
    const Stripe* const stripe = stripes.of(slice.chunk);
    return stripe != nullptr && std::ranges::any_of(stripe->members, listed);
  });
}

bool CopyPlanner::is_fully_redundant() const {
  return scan_at_ == kNoChunk && queue_.empty() && !parity_.lacks_parity();
}

bool CopyPlanner::has_lost(const VersionData& version) const {
  return std::ranges::any_of(version.slices, [this](const PackedSlice& slice) {
    const ChunkTable& chunks = pool_.state().chunks();
    return chunks.has_copies(slice.chunk) &&
           rank_of(slice.chunk, view_of(slice.chunk)) == kRankLost;
  });
}

std::uint64_t CopyPlanner::lost_bytes(const VersionData& version) const {
  std::uint64_t bytes = 0;
  for (const PackedSlice& slice : version.slices) {
    if (queue_.rank(slice.chunk) != kRankLost) continue;
    if (rank_of(slice.chunk, view_of(slice.chunk)) == kRankLost) bytes += slice.length;
  }
  return bytes;
}

bool CopyPlanner::may_leave(BenefactorId leaving) {
  if (scan_at_ != kNoChunk) return false;
  for (const auto& [rank, chunk] : queue_.in_order()) {
    if (rank >= kRankSole) break;
    if (busy_.count(chunk) > 0) return false;
    const View view = view_of(chunk);
    if (!contains(view.bad, leaving)) continue;
    const std::uint64_t bytes = extent_bytes(pool_.state().chunks().length(chunk));
    if (targets_.choose(view, bytes, rank, false)) return false;
  }
  return true;
}

// ---- making copies ----------------------------------------------------------------------------

void CopyPlanner::run() {
  unanswered_copies_.ask();
  unanswered_stripes_.ask();
  scan();
  plan();
  if (scan_at_ == kNoChunk) lost_images_.run();
}

void CopyPlanner::plan() {
  Batches batches;
  std::size_t examined = 0;
  bool stuck = true;
  // If no chunk of the last turn found a target, continues with the chunks behind them.
  const CopyQueue::Order& order = queue_.in_order();
  auto at = order.lower_bound(resume_);
  for (; at != order.end() && examined < kExaminedMax;) {
    const auto [rank, chunk] = *at++;
    if (rank == kRankLost) break;
    if (busy_.count(chunk) > 0) continue;
    ++examined;
    update(chunk);
    if (queue_.rank(chunk) != rank) continue;
    if (place(chunk, rank, batches)) stuck = false;
  }
  const bool more = at != order.end() && at->first != kRankLost;
  resume_ = stuck && more ? *at : CopyQueue::Entry{};
  for (auto& [key, batch] : batches) send(std::move(batch));
  drop_surplus();
}

/// Returns copies that may go, because enough others can be read now. Copies on silent benefactors
/// do not count, because these may not return.
std::vector<Extent> CopyPlanner::surplus_copies(const View& view) const {
  const auto is_reachable = [this](const Extent& copy) { return pool_.is_reachable(copy); };
  const auto readable = std::count_if(view.good.begin(), view.good.end(), is_reachable);
  if (readable < view.wanted || view.good.empty()) return {};
  std::vector<Extent> out = view.bad;
  std::uint32_t kept = 0;
  for (const Extent& copy : view.good) {
    if (is_reachable(copy) && ++kept > view.wanted) out.push_back(copy);
  }
  return out;
}

/// Drops surplus copies. A chunk with a copy in flight is examined again when that is settled.
void CopyPlanner::drop_surplus() {
  ChangeCopies command;
  while (!surplus_.empty() && command.changes.size() < kBatchItems) {
    const ChunkIndex chunk = surplus_.extract(surplus_.begin()).value();
    if (busy_.count(chunk) > 0) continue;
    const View view = view_of(chunk);
    const std::vector<Extent> surplus = surplus_copies(view);
    if (surplus.empty()) continue;
    const Chunk known = pool_.state().chunks().get(chunk);
    for (const Extent& copy : surplus) {
      command.changes.push_back({view.good.front(), known.name, known.length, {}, copy});
    }
  }
  if (!surplus_.empty()) plan_soon();
  if (command.changes.empty()) return;
  pool_.execute(std::move(command), [](const Result<Affected>&) {});
}

bool CopyPlanner::place(ChunkIndex chunk, Rank rank, Batches& batches) {
  View view = view_of(chunk);
  if (const Stripe* const stripe = pool_.state().stripes().of(chunk)) {
    for (const ChunkIndex member : stripe->members) {
      const auto made = busy_.find(member);
      if (made == busy_.end()) continue;
      view.avoided.insert(pool_.domains().domain(made->second, view.level));
    }
  }
  const std::uint64_t bytes = extent_bytes(pool_.state().chunks().length(chunk));
  const Extent* from = nullptr;
  for (const Extent& source : view.sources) {
    if (!traffic_.is_free(source.benefactor, 0)) continue;
    if (from == nullptr || traffic_.load(source.benefactor) < traffic_.load(from->benefactor))
      from = &source;
  }
  // No copy can be read: reconstructs the chunk from its stripe, with a request of its own.
  std::optional<msg::BuildStripe> build;
  if (view.sources.empty()) build = build_of(chunk);
  if (from == nullptr && !build) return false;
  const auto target = targets_.choose(view, bytes, rank, true);
  if (!target) {
    const bool undrained = pool_.state().chunks().undrained(chunk) > 0;
    if (undrained && pool_.now() >= evict_next_ && !targets_.choose(view, bytes, rank, false)) {
      evict_next_ = pool_.now() + kEvictAgain;
      (void)evict_(kBatchBytes);
    }
    return false;
  }
  const auto range = pool_.space().take(*target, bytes, bytes);
  if (!range) return false;
  // The hold keeps the chunk's place from being granted while it is read.
  pool_.hold(chunk);
  busy_[chunk] = *target;
  traffic_.add_load(*target, bytes);
  if (build) {
    send(std::move(*build), Sent{{}, *target, {{chunk, {}, *range}}, bytes, true});
    return true;
  }
  traffic_.add_load(from->benefactor, bytes);
  Sent& batch = batches[{from->benefactor, *target}];
  batch.source = from->benefactor;
  batch.target = *target;
  batch.items.push_back({chunk, *from, *range});
  batch.bytes += bytes;
  if (batch.bytes >= kBatchBytes || batch.items.size() >= kBatchItems) {
    send(std::move(batch));
    batches.erase({from->benefactor, *target});
  }
  return true;
}

/// Returns a request that reconstructs the block from its stripe, or nothing when too few blocks
/// can be read now.
std::optional<msg::BuildStripe> CopyPlanner::build_of(ChunkIndex chunk) const {
  const State& state = pool_.state();
  const Stripe* const stripe = state.stripes().of(chunk);
  if (stripe == nullptr) return std::nullopt;
  msg::BuildStripe request;
  request.data = stripe->data;
  request.parity = stripe->parity();
  for (std::uint32_t i = 0; i < stripe->members.size(); ++i) {
    const ChunkIndex member = stripe->members[i];
    if (member == chunk || request.inputs.size() == stripe->data) continue;
    const View view = plain_view_of(member);
    const auto free =
        std::find_if(view.sources.begin(), view.sources.end(),
                     [&](const Extent& copy) { return traffic_.is_free(copy.benefactor, 0); });
    if (free != view.sources.end())
      traffic_.add_source(request, i, state.chunks().get(member), *free);
  }
  if (request.inputs.size() < stripe->data) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(stripe->number_of(chunk));
  const Chunk wanted = state.chunks().get(chunk);
  request.outputs.push_back({number, 0, wanted.length, wanted.name});
  return request;
}

void CopyPlanner::send(Sent sent) {
  const ClientId number = traffic_.reader(sent.target);
  msg::CopyExtents request{number, pool_.source(sent.source, sent.target, number), {}, {}};
  for (const Item& item : sent.items) {
    const Chunk chunk = pool_.state().chunks().get(item.chunk);
    request.copies.push_back(
        {item.from.offset, item.to.offset, chunk.length, chunk.crc, chunk.name});
  }
  request.grants_before = GrantId{pool_.next_id()};
  send(std::move(request), std::move(sent));
}

void CopyPlanner::send(msg::BuildStripe request, Sent sent) {
  traffic_.let_read(sent.target, request);
  request.outputs.front().to_offset = sent.items.front().to.offset;
  request.grants_before = GrantId{pool_.next_id()};
  for (const auto& input : request.inputs) {
    sent.inputs.push_back(
        pool_.state().stripes().of(sent.items.front().chunk)->members[input.number]);
    sent.read.push_back({request.sources[input.source].id, input.offset});
  }
  send(msg::Request(std::move(request)), std::move(sent));
}

void CopyPlanner::send(msg::Request request, Sent sent) {
  const std::uint64_t number = ++numbers_made_;
  traffic_.pace(sent.target, sent.bytes);
  rpc::Peer* const peer = pool_.peer_of(sent.target);
  sent_.emplace(number, std::move(sent));
  peer->call(std::move(request), limits::kOperationDeadline,
             [this, number, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) done(number, answer);
             });
}

/// Translates the answer into that of a copy request: a block that was not built has failed.
std::optional<msg::CopyExtents::Reply> CopyPlanner::outcome_of(const Sent& sent,
                                                               const rpc::Answer& answer) {
  if (!answer) return std::nullopt;
  if (const auto* copied = std::get_if<msg::CopyExtents::Reply>(&*answer)) return *copied;
  const auto* built = std::get_if<msg::BuildStripe::Reply>(&*answer);
  if (built == nullptr) return std::nullopt;
  for (const std::uint32_t i : built->failed) {
    if (i < sent.read.size()) traffic_.park(sent.read[i].benefactor);
  }
  for (const std::uint32_t i : built->corrupt) {
    if (i >= sent.read.size()) continue;
    scrubber_.queue_suspected(sent.inputs[i], sent.read[i]);
    traffic_.park(sent.target);
  }
  const ChunkIndex chunk = sent.items.front().chunk;
  const bool good =
      built->crcs.size() == 1 && built->crcs.front() == pool_.state().chunks().get(chunk).crc;
  if (!good && !built->crcs.empty()) {
    log::error("chunk {}: what was made from its stripe is not it", chunk);
    traffic_.park(sent.target);
  }
  msg::CopyExtents::Reply reply;
  if (!good) reply.failed = {0};
  if (good) ++made_.rebuilt;
  return reply;
}

void CopyPlanner::done(std::uint64_t number, const rpc::Answer& answer) {
  Sent& sent = sent_.at(number);
  traffic_.take_load(sent.target, sent.bytes);
  if (!sent.built) traffic_.take_load(sent.source, sent.bytes);
  const auto reply = outcome_of(sent, answer);
  if (!reply) return on_unknown_outcome(number);
  if (!sent.built) targets_.order().note_copied(sent.source, sent.target, reply->failed.empty());
  if (!reply->failed.empty() && !sent.built) traffic_.park(sent.source);
  const auto has = [](const std::vector<std::uint32_t>& list, std::size_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  ChangeCopies command;
  for (std::size_t i = 0; i < sent.items.size(); ++i) {
    const Item& item = sent.items[i];
    // Source or target may be at fault: the source checks its extent.
    if (has(reply->corrupt, i)) scrubber_.queue_suspected(item.chunk, item.from);
    if (has(reply->corrupt, i) || has(reply->failed, i)) continue;
    const Chunk chunk = pool_.state().chunks().get(item.chunk);
    if (chunk.copies.empty()) continue;
    const View view = view_of(item.chunk);
    // A client has stored the chunk again in the meantime.
    if (sent.built && !view.good.empty()) continue;
    if (contains(view.good, sent.target)) continue;
    ChangeCopies::Change change{
        chunk.copies.front(), chunk.name, chunk.length, {sent.target, item.to.offset}, {}};
    // Never two copies on one benefactor.
    const auto here = on(view.bad, sent.target);
    if (!view.bad.empty()) change.drop = here == view.bad.end() ? view.bad.front() : *here;
    made_.repaired += pool_.is_wrong(change.drop) ? 1 : 0;
    ++made_.copies_made;
    made_.copied_bytes += chunk.length;
    command.changes.push_back(change);
  }
  sent.answered = true;
  if (command.changes.empty()) {
    if (!sent.built) traffic_.park(sent.source);
    return settle(number);
  }
  pool_.execute(std::move(command), [this, number](const Result<Affected>&) { settle(number); });
  const auto found = sent_.find(number);
  if (found != sent_.end()) free_unused_targets(found->second);
}

/// Must run as soon as the command was applied. From then on the chunk owns the range, and may free
/// it before the command is durable.
void CopyPlanner::free_unused_targets(Sent& sent) {
  for (Item& item : sent.items) {
    const Range to = std::exchange(item.to, {});
    if (to.length == 0) continue;
    const auto copies = pool_.state().chunks().get(item.chunk).copies;
    const Extent target{sent.target, to.offset};
    if (std::find(copies.begin(), copies.end(), target) == copies.end()) {
      pool_.space().release(sent.target, to);
    }
  }
}

/// Ends a request: releases its chunks.
void CopyPlanner::settle(std::uint64_t number) {
  Sent sent = std::move(sent_.extract(number).mapped());
  free_unused_targets(sent);
  for (const Item& item : sent.items) {
    busy_.erase(item.chunk);
    pool_.release(item.chunk);
    update_stripe(item.chunk);
  }
  plan();
}

void CopyPlanner::on_unknown_outcome(std::uint64_t number) {
  const Sent sent = std::move(sent_.extract(number).mapped());
  log::warning("benefactor {} did not say whether it has made copies", sent.target.value);
  traffic_.park(sent.target);
  if (!sent.built) {
    targets_.order().note_copied(sent.source, sent.target, false);
    traffic_.park(sent.source);
  }
  std::vector<Range> targets;
  for (const Item& item : sent.items) {
    targets.push_back(item.to);
    busy_.erase(item.chunk);
    pool_.release(item.chunk);
    update(item.chunk);
  }
  (sent.built ? unanswered_stripes_ : unanswered_copies_).add(sent.target, std::move(targets));
}

}  // namespace stdchk::manager
