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
constexpr std::size_t kWantsMax = 256;  // of one target
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
  log::info("several hosts read version {} of file {}: they pass its chunks on to each other",
            key.version, key.file.value);
  return true;
}

std::optional<Extent> NearCopies::copy_on_host(const Group& group, const Wanted& wanted) const {
  const std::string& host = pool_.benefactors().at(wanted.at).info.host_token;
  for (const Extent& copy : pool_.state().chunks().get(wanted.chunk).copies) {
    if (!pool_.is_reachable(copy)) continue;
    if (pool_.benefactors().at(copy.benefactor).info.host_token == host) return copy;
  }
  const auto holders = group.chunks.find(wanted.chunk);
  if (holders == group.chunks.end()) return std::nullopt;
  for (const Extent& copy : holders->second.copies) {
    if (copy.benefactor == wanted.at) return copy;
  }
  return std::nullopt;
}

void NearCopies::find(const Key& key, const Wanted& wanted, Done done) {
  const auto group = groups_.find(key);
  if (group == groups_.end()) return done(std::nullopt);
  group->second.asked = pool_.now();
  if (const auto there = copy_on_host(group->second, wanted)) return done(there);
  const bool any = group->second.chunks.contains(wanted.chunk) ||
                   pool_.is_reachable(pool_.state().chunks().get(wanted.chunk).copies);
  Target& target = targets_[wanted.at];
  if (!any || pool_.now() < target.paused_until || target.wants.size() >= kWantsMax) {
    return done(std::nullopt);
  }
  if (target.wants.empty()) target.moved = pool_.now();
  Want& want = target.wants[{key, wanted.chunk}];
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
    bool any = false;
    for (const Extent& copy : found->second.copies) {
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
  if (std::exchange(plan_posted_, true)) return;
  pool_.reactor().schedule_after(Duration::zero(), [this, alive = pool_.alive()] {
    if (alive.expired()) return;
    plan_posted_ = false;
    plan();
  });
}

/// Begins with another target each time, so that all get their turn at a busy source.
void NearCopies::plan() {
  if (std::exchange(review_, false)) review();
  if (targets_.empty()) return;
  auto at = targets_.upper_bound(planned_first_);
  if (at == targets_.end()) at = targets_.begin();
  planned_first_ = at->first;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    plan_for(at->first, at->second);
    if (++at == targets_.end()) at = targets_.begin();
  }
}

void NearCopies::plan_for(BenefactorId id, Target& target) {
  if (target.busy || target.wants.empty() || pool_.now() < target.paused_until) return;
  if (!can_take(id)) return;
  Sent sent = choose(id, target);
  if (sent.items.empty()) return;
  if (!take_space(sent, target)) return refuse(id);
  send(std::move(sent));
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
  while (target.bytes + sent.bytes > (free_bytes() + target.bytes) / 2) {
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
  traffic_.add_load(sent.target, sent.bytes);
  traffic_.add_load(sent.source, sent.bytes);
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
  traffic_.take_load(sent.target, sent.bytes);
  traffic_.take_load(sent.source, sent.bytes);
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
  Holders* const holders = holders_of(item);
  if (holders == nullptr) return pool_.space().release(sent.target, item.to);
  const Extent at{sent.target, item.to.offset};
  Target& target = targets_.at(sent.target);
  holders->copies.push_back(at);
  target.copies.push_back({item.chunk, item.to});
  target.bytes += item.to.length;
  target.moved = moved_ = pool_.now();
  answer(sent.target, item.chunk, at);
}

void NearCopies::failed(const Sent& sent, const Item& item, bool corrupt) {
  pool_.space().release(sent.target, item.to);
  // Source or target may be at fault: the source checks its extent.
  if (corrupt && item.stored) scrubber_.queue_suspected(item.chunk.second, item.from);
  Holders* const holders = holders_of(item);
  if (holders != nullptr && !item.stored) std::erase(holders->copies, item.from);
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

void NearCopies::drop_oldest(BenefactorId id, Target& target) {
  const Copy copy = target.copies.front();
  target.copies.pop_front();
  target.bytes -= copy.range.length;
  forget(copy.chunk, id);
  pool_.space().release(id, copy.range);
}

void NearCopies::drop_target(BenefactorId id) {
  Target& target = targets_.at(id);
  while (!target.copies.empty()) drop_oldest(id, target);
  refuse(id);
}

void NearCopies::end(const Key& key) {
  groups_.erase(key);
  for (auto& [id, target] : targets_) {
    for (auto copy = target.copies.begin(); copy != target.copies.end();) {
      if (copy->chunk.first != key) {
        ++copy;
        continue;
      }
      target.bytes -= copy->range.length;
      pool_.space().release(id, copy->range);
      copy = target.copies.erase(copy);
    }
    for (auto want = target.wants.begin(); want != target.wants.end();) {
      const auto at = want++;
      if (at->first.first == key) answer(id, ChunkKey(at->first), std::nullopt);
    }
  }
  std::erase_if(targets_, [this](const auto& each) {
    const Target& target = each.second;
    return groups_.empty() && !target.busy && pool_.now() >= target.paused_until;
  });
  pool_.unpin(key.file, key.version);
  log::info("the hosts that read version {} of file {} have what they need", key.version,
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
  for (const auto& [id, target] : targets_) {
    // An idle target waits for its turn while others get copies.
    const bool in_turn = !target.busy && pool_.now() - moved_ < kPatience;
    const Duration patience = in_turn ? kStarved : kPatience;
    if (!target.wants.empty() && pool_.now() - target.moved >= patience) refuse(id);
  }
  plan();
}

}  // namespace stdchk::manager
