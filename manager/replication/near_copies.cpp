#include "manager/replication/near_copies.h"

#include <algorithm>
#include <tuple>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// Small chunks go together in one request.
constexpr std::uint64_t kBatchBytes = limits::kMiB;
constexpr std::size_t kWantsMax = 256;          // of one target
constexpr std::size_t kWaitingMax = 1024;       // questions for one chunk at one target
constexpr std::size_t kWantsPlannedMax = 4096;  // in one turn
constexpr std::size_t kSourcesMax = 64;         // near copies examined for one want
constexpr std::size_t kCopiesMax = 1 << 19;     // of all targets: bounds memory, and end()
constexpr unsigned kFailuresMax = 3;
constexpr Duration kStarved = 10s;
constexpr Duration kPause = 10s;
/// A copy that takes longer does not hold up others: another source may make theirs.
constexpr Duration kSlow = 2s;

bool has(const std::vector<std::uint32_t>& list, std::size_t i) {
  return std::ranges::find(list, i) != list.end();
}

}  // namespace

NearCopies::NearCopies(Pool& pool, CopyTraffic& traffic, Scrubber& scrubber)
    : pool_(pool), traffic_(traffic), scrubber_(scrubber), unanswered_(pool, msg::CopyExtents{}) {}

// ---- what readers ask -------------------------------------------------------------------------

bool NearCopies::can_take(BenefactorId id) const {
  const auto found = pool_.benefactors().find(id);
  return found != pool_.benefactors().end() && found->second.peer != nullptr &&
         !found->second.leaving && found->second.info.state == msg::BenefactorState::kAlive &&
         pool_.space().usable(id);
}

std::optional<BenefactorId> NearCopies::benefactor_on(const std::string& host_token) {
  if (host_token.empty()) return std::nullopt;
  if (std::exchange(hosts_stale_, false)) {
    hosts_.clear();
    for (const auto& [id, status] : pool_.benefactors()) {
      // The first benefactor of a host, because all readers of the host should share its copies.
      if (can_take(id)) hosts_.try_emplace(status.info.host_token, id);
    }
  }
  const auto found = hosts_.find(host_token);
  if (found == hosts_.end() || !can_take(found->second)) return std::nullopt;
  return found->second;
}

bool NearCopies::share(const Key& key) {
  if (!pool_.config().reader_copies || pool_.now() < off_until_) return false;
  if (groups_.contains(key)) return true;
  if (!pool_.pin(key.file, key.version)) return false;
  Group& group = groups_[key];
  group.number = ++numbers_made_;
  group.asked = pool_.now();
  log::debug("several hosts read version {} of file {}: they pass its chunks on to each other",
             key.version, key.file.value);
  return true;
}

std::optional<Extent> NearCopies::copy_on_host(const Key& key, const Wanted& wanted) const {
  const std::string& host = pool_.benefactors().at(wanted.at).info.host_token;
  for (const Extent& copy : pool_.state().chunks().get(wanted.chunk).copies) {
    if (!pool_.is_reachable(copy)) continue;
    if (pool_.benefactors().at(copy.benefactor).info.host_token == host) return copy;
  }
  const auto target = targets_.find(wanted.at);
  if (target == targets_.end()) return std::nullopt;
  const auto number = target->second.number_of.find({key, wanted.chunk});
  if (number == target->second.number_of.end()) return std::nullopt;
  return Extent{wanted.at, target->second.copies.at(number->second).range.offset};
}

void NearCopies::find(const Key& key, const Wanted& wanted, Done done) {
  const auto group = groups_.find(key);
  if (group == groups_.end()) return done(std::nullopt);
  group->second.asked = pool_.now();
  if (const auto there = copy_on_host(key, wanted)) return done(there);
  const Chunk stored = pool_.state().chunks().get(wanted.chunk);
  // Without a checksum nobody could tell what a near copy has become.
  const bool checked = stored.crc != 0 || stored.name.is_named();
  const bool any = group->second.chunks.contains(wanted.chunk) || pool_.is_reachable(stored.copies);
  Target& target = targets_[wanted.at];
  if (!checked || !any || pool_.now() < target.paused_until) return done(std::nullopt);
  const ChunkKey chunk{key, wanted.chunk};
  if (!target.wants.contains(chunk)) {
    if (target.wants.size() >= kWantsMax) return done(std::nullopt);
    if (target.wants.empty()) target.moved = pool_.now();
    target.wants[chunk].since = pool_.now();
  }
  Want& want = target.wants.at(chunk);
  if (want.waiting.size() >= kWaitingMax) return done(std::nullopt);
  want.offset = wanted.offset;
  want.waiting.push_back(std::move(done));
  plan_soon();
}

// ---- who sends what to whom -------------------------------------------------------------------

bool NearCopies::is_sending(BenefactorId id) const {
  const auto found = sending_.find(id);
  return found != sending_.end() && pool_.now() < found->second;
}

/// Returns a copy to read from, on `only` if that is given, otherwise on a benefactor that sends
/// nothing now. Returns nothing when the chunk should wait.
std::optional<NearCopies::Source> NearCopies::source_of(const Group& group, ChunkIndex chunk,
                                                        BenefactorId only) const {
  const auto suits = [&](const Extent& copy) {
    return only ? copy.benefactor == only : !is_sending(copy.benefactor);
  };
  const auto found = group.chunks.find(chunk);
  if (found != group.chunks.end()) {
    // When there are many copies, this looks at others each time.
    const std::vector<Extent>& copies = found->second.copies;
    const std::size_t first = copies.size() > kSourcesMax ? numbers_made_ * kSourcesMax : 0;
    bool any = false;
    for (std::size_t i = 0; i < std::min(copies.size(), kSourcesMax); ++i) {
      const Extent& copy = copies[(first + i) % copies.size()];
      if (!pool_.is_reachable(copy)) continue;
      any = true;
      if (suits(copy)) return Source{copy, false};
    }
    if (any) return std::nullopt;
    if (found->second.under_way > 0 && pool_.now() < found->second.expected) return std::nullopt;
  }
  for (const Extent& copy : pool_.state().chunks().get(chunk).copies) {
    if (pool_.is_reachable(copy) && suits(copy)) return Source{copy, true};
  }
  return std::nullopt;
}

std::size_t NearCopies::holder_count(const ChunkKey& chunk) const {
  const auto& chunks = groups_.at(chunk.first).chunks;
  const auto found = chunks.find(chunk.second);
  return found == chunks.end() ? 0 : found->second.copies.size() + found->second.under_way;
}

void NearCopies::plan_soon() {
  planning_.unplanned = targets_.size();
  post_plan();
}

void NearCopies::post_plan() {
  if (std::exchange(planning_.posted, true)) return;
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    planning_.posted = false;
    plan();
  });
}

/// Begins with another target each time, so that all get their turn at a busy source. Leaves
/// targets with too many wants for one turn to the next turn.
void NearCopies::plan() {
  if (std::exchange(review_, false)) review();
  if (targets_.empty()) return;
  auto at = targets_.upper_bound(planning_.first);
  if (at == targets_.end()) at = targets_.begin();
  planning_.first = at->first;
  std::size_t examined = 0;
  for (std::size_t left = std::min(std::exchange(planning_.unplanned, 0), targets_.size());
       left > 0;) {
    examined += plan_for(at->first, at->second);
    if (--left > 0 && examined >= kWantsPlannedMax) {
      planning_.first = at->first;
      planning_.unplanned = std::max(planning_.unplanned, left);
      return post_plan();
    }
    if (++at == targets_.end()) at = targets_.begin();
  }
}

/// Returns how much it has examined: wants, and the target.
std::size_t NearCopies::plan_for(BenefactorId id, Target& target) {
  if (target.busy || target.wants.empty() || pool_.now() < target.paused_until) return 1;
  if (!can_take(id)) return 1;
  const std::size_t examined = 1 + target.wants.size();
  Sent sent = choose(id, target);
  if (sent.items.empty()) return examined;
  if (take_space(sent, target)) {
    send(std::move(sent));
  } else {
    refuse(id);
  }
  return examined;
}

/// Chooses what the target gets next: the chunk that the fewest hosts have, then the first in the
/// file. Adds further chunks from the same source.
NearCopies::Sent NearCopies::choose(BenefactorId id, const Target& target) const {
  std::vector<std::tuple<std::size_t, std::uint64_t, ChunkKey>> order;
  for (const auto& [chunk, want] : target.wants) {
    if (!want.sent) order.emplace_back(holder_count(chunk), want.offset, chunk);
  }
  std::ranges::sort(order);
  Sent sent;
  sent.target = id;
  for (const auto& [count, offset, chunk] : order) {
    const std::uint64_t bytes = extent_bytes(pool_.state().chunks().length(chunk.second));
    if (sent.bytes > 0 && sent.bytes + bytes > kBatchBytes) break;
    const Group& group = groups_.at(chunk.first);
    const auto source = source_of(group, chunk.second, sent.source);
    if (!source || source->at.benefactor == id) continue;
    sent.source = source->at.benefactor;
    sent.items.push_back({chunk, group.number, source->at, {}, source->stored});
    sent.bytes += bytes;
  }
  return sent;
}

/// Takes a range for each item. Frees the oldest near copies when they use too much.
bool NearCopies::take_space(Sent& sent, Target& target) {
  const auto free_bytes = [&] { return pool_.space().free_bytes(sent.target); };
  const std::size_t most = kCopiesMax / targets_.size();
  while (target.bytes + sent.bytes > (free_bytes() + target.bytes) / 2 ||
         target.copies.size() > most) {
    if (target.copies.empty()) return false;
    drop_oldest(sent.target, target);
  }
  for (Item& item : sent.items) {
    const std::uint64_t bytes = extent_bytes(pool_.state().chunks().length(item.chunk.second));
    const auto range = pool_.space().take(sent.target, bytes, bytes);
    if (range) {
      item.to = *range;
      continue;
    }
    for (const Item& taken : sent.items) pool_.space().release(sent.target, taken.to);
    return false;
  }
  return true;
}

void NearCopies::send(Sent sent) {
  const ClientId reader = traffic_.reader(sent.target);
  msg::CopyExtents request{reader, pool_.source(sent.source, sent.target, reader), {}, {}};
  Target& target = targets_.at(sent.target);
  for (const Item& item : sent.items) {
    const Chunk chunk = pool_.state().chunks().get(item.chunk.second);
    request.copies.push_back(
        {item.from.offset, item.to.offset, chunk.length, chunk.crc, chunk.name});
    target.wants.at(item.chunk).sent = true;
    Holders& holders = groups_.at(item.chunk.first).chunks[item.chunk.second];
    ++holders.under_way;
    holders.expected = pool_.now() + kSlow;
    // The hold keeps the source's place from being granted while it is read.
    pool_.hold(item.chunk.second);
  }
  request.grants_before = GrantId{pool_.next_id()};
  target.busy = true;
  sending_[sent.source] = pool_.now() + kSlow;
  rpc::Peer* const peer = pool_.peer_of(sent.target);
  const std::uint64_t number = ++numbers_made_;
  sent_.emplace(number, std::move(sent));
  peer->call(std::move(request), limits::kCallDeadline,
             [this, number, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) done(number, answer);
             });
}

// ---- what has come ----------------------------------------------------------------------------

void NearCopies::done(std::uint64_t number, const rpc::Answer& answer) {
  const Sent sent = std::move(sent_.extract(number).mapped());
  sending_.erase(sent.source);
  targets_[sent.target].busy = false;
  const auto* reply = answer ? std::get_if<msg::CopyExtents::Reply>(&*answer) : nullptr;
  std::vector<Range> unknown;
  for (std::size_t i = 0; i < sent.items.size(); ++i) {
    const Item& item = sent.items[i];
    if (Holders* const holders = holders_of(item)) --holders->under_way;
    if (reply == nullptr) {
      unknown.push_back(item.to);
    } else if (has(reply->failed, i) || has(reply->corrupt, i)) {
      failed(sent, item, has(reply->corrupt, i));
    } else {
      keep(sent, item);
    }
    pool_.release(item.chunk.second);
  }
  if (reply == nullptr) {
    unanswered_.add(sent.target, std::move(unknown));
    refuse(sent.target);
  }
  plan_soon();
}

/// Returns where the item's chunk is. Returns nullptr when its group has ended.
NearCopies::Holders* NearCopies::holders_of(const Item& item) {
  const auto group = groups_.find(item.chunk.first);
  if (group == groups_.end() || group->second.number != item.group) return nullptr;
  return &group->second.chunks[item.chunk.second];
}

/// Takes a copy whose checksum was right.
void NearCopies::keep(const Sent& sent, const Item& item) {
  const std::uint32_t length = pool_.state().chunks().length(item.chunk.second);
  ++figures_.copies;
  figures_.copied_bytes += length;
  figures_.stored_bytes += item.stored ? length : 0;
  if (holders_of(item) == nullptr) return pool_.space().release(sent.target, item.to);
  drop(item.chunk, sent.target);
  const Extent at{sent.target, item.to.offset};
  Target& target = targets_.at(sent.target);
  holders_of(item)->copies.push_back(at);
  const std::uint64_t number = ++numbers_made_;
  target.number_of[item.chunk] = number;
  target.copies.emplace(number, Copy{item.chunk, item.to});
  target.bytes += item.to.length;
  target.moved = moved_ = pool_.now();
  answer(sent.target, item.chunk, at);
}

void NearCopies::failed(const Sent& sent, const Item& item, bool corrupt) {
  pool_.space().release(sent.target, item.to);
  // Source or target may be at fault: the source checks its extent.
  if (corrupt && item.stored) scrubber_.queue_suspected(item.chunk.second, item.from);
  // Another source may do better. A near copy may have been freed meanwhile.
  const Holders* const holders = item.stored ? nullptr : holders_of(item);
  if (holders != nullptr &&
      std::ranges::find(holders->copies, item.from) != holders->copies.end()) {
    drop(item.chunk, item.from.benefactor);
  }
  Target& target = targets_.at(sent.target);
  const auto want = target.wants.find(item.chunk);
  if (want == target.wants.end()) return;
  want->second.sent = false;
  if (++want->second.failures >= kFailuresMax) answer(sent.target, item.chunk, std::nullopt);
}

/// Answers all who wait for this chunk there.
void NearCopies::answer(BenefactorId id, const ChunkKey& chunk, std::optional<Extent> at) {
  auto want = targets_.at(id).wants.extract(chunk);
  if (want.empty()) return;
  for (const Done& each : want.mapped().waiting) each(at);
}

/// Sends the readers of this target to the copies that count, and lets the target rest.
void NearCopies::refuse(BenefactorId id) {
  Target& target = targets_.at(id);
  target.paused_until = pool_.now() + kPause;
  const auto wants = std::exchange(target.wants, {});
  for (const auto& [chunk, want] : wants) {
    for (const Done& each : want.waiting) each(std::nullopt);
  }
}

/// Answers readers whose chunk was left for others too often.
void NearCopies::answer_overdue(BenefactorId id, Target& target) {
  for (auto want = target.wants.begin(); want != target.wants.end();) {
    const auto at = want++;
    if (pool_.now() - at->second.since < kStarved) continue;
    answer(id, ChunkKey(at->first), std::nullopt);
  }
}

// ---- what goes --------------------------------------------------------------------------------

/// Drops the target's copy from the places where the chunk is.
void NearCopies::forget(const ChunkKey& chunk, BenefactorId id) {
  const auto group = groups_.find(chunk.first);
  if (group == groups_.end()) return;
  const auto holders = group->second.chunks.find(chunk.second);
  if (holders == group->second.chunks.end()) return;
  std::erase_if(holders->second.copies, [id](const Extent& copy) { return copy.benefactor == id; });
  if (holders->second.copies.empty() && holders->second.under_way == 0) {
    group->second.chunks.erase(holders);
  }
}

void NearCopies::drop(const ChunkKey& chunk, BenefactorId id) {
  Target& target = targets_.at(id);
  const auto number = target.number_of.extract(chunk);
  if (number.empty()) return;
  const Range range = target.copies.extract(number.mapped()).mapped().range;
  target.bytes -= range.length;
  forget(chunk, id);
  pool_.space().release(id, range);
}

void NearCopies::drop_oldest(BenefactorId id, const Target& target) {
  drop(ChunkKey(target.copies.begin()->second.chunk), id);
}

void NearCopies::drop_target(BenefactorId id) {
  Target& target = targets_.at(id);
  while (!target.copies.empty()) drop_oldest(id, target);
  refuse(id);
}

void NearCopies::end(const Key& key) {
  groups_.erase(key);
  for (auto& [id, target] : targets_) {
    const ChunkKey first{key, ChunkIndex{0}};
    auto copy = target.number_of.lower_bound(first);
    while (copy != target.number_of.end() && copy->first.first == key) {
      const Range range = target.copies.extract(copy->second).mapped().range;
      target.bytes -= range.length;
      pool_.space().release(id, range);
      copy = target.number_of.erase(copy);
    }
    auto want = target.wants.lower_bound(first);
    while (want != target.wants.end() && want->first.first == key) {
      const auto at = want++;
      answer(id, ChunkKey(at->first), std::nullopt);
    }
  }
  std::erase_if(targets_, [this](const auto& each) {
    const Target& target = each.second;
    return groups_.empty() && !target.busy && pool_.now() >= target.paused_until;
  });
  pool_.unpin(key.file, key.version);
  log::debug("the hosts that read version {} of file {} have what they need", key.version,
             key.file.value);
}

bool NearCopies::give_up() {
  const bool any =
      std::ranges::any_of(targets_, [](const auto& each) { return !each.second.copies.empty(); });
  if (!groups_.empty()) off_until_ = pool_.now() + kPause;
  while (!groups_.empty()) end(Key(groups_.begin()->first));
  return any;
}

void NearCopies::benefactors_changed() {
  hosts_stale_ = true;
  review_ = true;
  if (!targets_.empty()) plan_soon();
}

/// Drops the copies of benefactors that are lost or leave. Readers on the host of a silent
/// benefactor do not wait.
void NearCopies::review() {
  for (auto& [id, target] : targets_) {
    if (can_take(id)) continue;
    const auto found = pool_.benefactors().find(id);
    const bool silent = found != pool_.benefactors().end() && !found->second.leaving &&
                        found->second.info.state == msg::BenefactorState::kSilent;
    if (!silent) {
      drop_target(id);
    } else if (!target.wants.empty()) {
      refuse(id);
    }
  }
}

void NearCopies::run() {
  hosts_stale_ = true;
  unanswered_.ask();
  std::vector<Key> idle;
  for (const auto& [key, group] : groups_) {
    if (pool_.now() - group.asked >= kIdle) idle.push_back(key);
  }
  for (const Key& key : idle) end(key);
  for (auto& [id, target] : targets_) {
    // An idle target waits for its turn while others get copies.
    const bool in_turn = !target.busy && pool_.now() - moved_ < kPatience;
    const Duration patience = in_turn ? kStarved : kPatience;
    if (!target.wants.empty() && pool_.now() - target.moved >= patience) refuse(id);
    answer_overdue(id, target);
  }
  planning_.unplanned = targets_.size();
  plan();
}

}  // namespace stdchk::manager
