#include "manager/copy_planner.h"

#include <algorithm>
#include <utility>

#include "core/extent_header.h"
#include "core/limits.h"
#include "core/log.h"
#include "manager/scrubber.h"
#include "manager/service.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kBytesBusy = 4 * limits::kMiB;
constexpr std::uint64_t kBytesIdle = 32 * limits::kMiB;
constexpr std::uint64_t kBatchBytes = 8 * limits::kMiB;
constexpr std::size_t kBatchItems = 256;
constexpr std::size_t kLookedMax = 1024;     // chunks in one turn
constexpr ChunkIndex kScannedMax = 1 << 13;  // entries of the table in one turn
constexpr Duration kParked = 2s;
constexpr Duration kTogether = 10ms;
constexpr Duration kEvictAgain = 1s;
constexpr std::uint64_t kReserve = 16;  // that part of an arena stays free for new writes
constexpr std::size_t kNamesReported = 20;
constexpr std::uint8_t kRankLost = 255;
constexpr std::uint8_t kRankSole = 2;  // below: no good copy is left, one can still be read

/// The same for both orders of the two, and nothing else in common with other pairs.
std::uint64_t pair_weight(BenefactorId a, BenefactorId b) {
  std::uint64_t x = std::min(a, b).value * 0x9E3779B97F4A7C15ULL ^ std::max(a, b).value;
  x ^= x >> 31;  // the mixer of splitmix64 (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

bool contains(const std::vector<Extent>& copies, BenefactorId benefactor) {
  return std::any_of(copies.begin(), copies.end(),
                     [&](const Extent& copy) { return copy.benefactor == benefactor; });
}

}  // namespace

// ---- which chunks lack copies -----------------------------------------------------------------

CopyPlanner::View CopyPlanner::view_of(ChunkIndex chunk) const {
  View view;
  view.wanted = service_.state().chunks().wanted(chunk);
  std::vector<Extent> leaving;
  std::vector<Extent> gone;
  for (const Extent& copy : service_.state().chunks().get(chunk).copies) {
    const auto found = service_.benefactors().find(copy.benefactor);
    if (is_wrong(copy)) {
      view.bad.push_back(copy);
    } else if (found == service_.benefactors().end() ||
               found->second.info.state == msg::BenefactorState::kGone) {
      gone.push_back(copy);
    } else {
      if (found->second.peer != nullptr) view.sources.push_back(copy);
      (found->second.leaving ? leaving : view.good).push_back(copy);
    }
  }
  view.leaving = !leaving.empty();
  // A second copy on a host does not count when there are enough hosts: it is moved.
  std::vector<Extent> extra;
  if (view.good.size() > 1 && hosts_ >= view.wanted) {
    std::set<std::string> hosts;
    for (const Extent& copy : std::exchange(view.good, {})) {
      const bool first =
          hosts.insert(service_.benefactors().at(copy.benefactor).info.host_token).second;
      (first ? view.good : extra).push_back(copy);
    }
  }
  view.bad.insert(view.bad.end(), gone.begin(), gone.end());
  view.bad.insert(view.bad.end(), leaving.begin(), leaving.end());
  view.bad.insert(view.bad.end(), extra.begin(), extra.end());
  return view;
}

std::optional<CopyPlanner::Rank> CopyPlanner::rank_of(ChunkIndex chunk) const {
  const ChunkTable& chunks = service_.state().chunks();
  if (!chunks.exists(chunk) || !chunks.has_copies(chunk)) return std::nullopt;
  const View view = view_of(chunk);
  const bool drained = chunks.undrained(chunk) == 0;
  if (view.good.empty() && !view.leaving) {
    return drained ? std::nullopt : std::optional<Rank>(kRankLost);
  }
  if (view.good.size() >= view.wanted) return std::nullopt;
  return static_cast<Rank>(2 * view.good.size() + (drained ? 1 : 0));
}

void CopyPlanner::update(ChunkIndex chunk) {
  const auto rank = rank_of(chunk);
  const auto found = ranks_.find(chunk);
  if (found != ranks_.end()) {
    if (rank == found->second) return;
    todo_.erase({found->second, chunk});
    ranks_.erase(found);
  }
  if (!rank) return;
  todo_.emplace(*rank, chunk);
  ranks_[chunk] = *rank;
}

void CopyPlanner::look_at(const VersionData& version) {
  for (const PackedSlice& slice : version.slices) update(slice.chunk);
  plan_soon();
}

/// What is committed shortly after each other goes together.
void CopyPlanner::plan_soon() {
  if (plan_posted_ || todo_.empty()) return;
  plan_posted_ = true;
  service_.reactor().schedule_after(kTogether, [this, alive = service_.alive()] {
    if (alive.expired()) return;
    plan_posted_ = false;
    plan();
  });
}

void CopyPlanner::mark_wrong(ChunkIndex chunk, const Extent& extent) {
  wrong_.insert(extent);
  update(chunk);
}

void CopyPlanner::benefactors_changed() {
  scan_at_ = 0;
  neighbours_.clear();
  hosts_ = host_count();
}

void CopyPlanner::scan() {
  if (scan_at_ == kNoChunk) return;
  scan_at_ = service_.state().chunks().visit_some(scan_at_, kScannedMax,
                                                  [this](ChunkIndex chunk) { update(chunk); });
  if (scan_at_ == kNoChunk) return report_lost();
  if (scan_posted_) return;
  scan_posted_ = true;
  service_.reactor().schedule_after(Duration::zero(), [this, alive = service_.alive()] {
    if (alive.expired()) return;
    scan_posted_ = false;
    scan();
  });
}

/// Says once which images have lost something.
void CopyPlanner::report_lost() {
  const std::uint64_t lost = figures().lost_chunks;
  if (lost == lost_reported_) return;
  const bool more = lost > lost_reported_;
  lost_reported_ = lost;
  if (!more) return;
  std::size_t named = 0;
  for (const auto& [sequence, id] : service_.state().undrained()) {
    const File& file = *service_.state().file(id);
    std::uint64_t bytes = 0;
    for (const PackedSlice& slice : file.newest.slices) {
      const auto rank = ranks_.find(slice.chunk);
      if (rank != ranks_.end() && rank->second == kRankLost) bytes += slice.length;
    }
    if (bytes == 0) continue;
    if (++named > kNamesReported) {
      log::error("more images have lost bytes");
      break;
    }
    log::error("image {}: {} of its {} bytes have no copy any more and were not drained",
               service_.state().path(file), bytes, file.newest.size_bytes);
  }
}

CopyPlanner::Figures CopyPlanner::figures() const {
  Figures out = made_;
  const ChunkTable& chunks = service_.state().chunks();
  for (const auto& [rank, chunk] : todo_) {
    const auto now = rank_of(chunk);
    if (!now) continue;
    if (*now == kRankLost) {
      ++out.lost_chunks;
      continue;
    }
    const View view = view_of(chunk);
    ++out.debt_chunks;
    out.debt_bytes += (view.wanted - view.good.size()) * std::uint64_t{chunks.length(chunk)};
  }
  return out;
}

msg::GetDebt::Reply CopyPlanner::debt_of(const VersionData& version) const {
  msg::GetDebt::Reply out;
  std::set<ChunkIndex> seen;
  for (const PackedSlice& slice : version.slices) {
    if (!service_.state().chunks().has_copies(slice.chunk) || !seen.insert(slice.chunk).second) {
      continue;
    }
    const std::size_t good = view_of(slice.chunk).good.size();
    if (good >= version.copies) continue;
    ++out.chunks;
    out.bytes +=
        (version.copies - good) * std::uint64_t{service_.state().chunks().length(slice.chunk)};
  }
  const auto lends = [](const auto& each) {
    return each.second.info.state != msg::BenefactorState::kGone && !each.second.leaving;
  };
  const auto& all = service_.benefactors();
  out.impossible = std::count_if(all.begin(), all.end(), lends) < version.copies;
  return out;
}

bool CopyPlanner::may_go(BenefactorId leaving) {
  if (scan_at_ != kNoChunk) return false;
  for (const auto& [rank, chunk] : todo_) {
    if (rank >= kRankSole) break;
    if (busy_.count(chunk) > 0) return false;
    const View view = view_of(chunk);
    if (!contains(view.bad, leaving)) continue;
    const std::uint64_t bytes = extent_bytes(service_.state().chunks().length(chunk));
    if (choose_target(view, bytes, rank, false)) return false;
  }
  return true;
}

// ---- where copies go --------------------------------------------------------------------------

std::size_t CopyPlanner::host_count() const {
  std::set<std::string> hosts;
  for (const auto& [id, status] : service_.benefactors()) {
    if (status.info.state == msg::BenefactorState::kAlive && !status.leaving) {
      hosts.insert(status.info.host_token);
    }
  }
  return hosts.size();
}

/// All others, in an order that is the benefactor's own and that of its opposite.
const std::vector<BenefactorId>& CopyPlanner::neighbours(BenefactorId primary) {
  const auto [found, added] = neighbours_.try_emplace(primary);
  if (!added) return found->second;
  for (const auto& [id, status] : service_.benefactors()) {
    if (id != primary && !status.info.addresses.empty()) found->second.push_back(id);
  }
  std::sort(found->second.begin(), found->second.end(), [&](BenefactorId a, BenefactorId b) {
    return pair_weight(primary, a) > pair_weight(primary, b);
  });
  return found->second;
}

/// It is there, and has the room.
bool CopyPlanner::can_take(BenefactorId id, std::uint64_t bytes, Rank rank) const {
  const BenefactorStatus& status = service_.benefactors().at(id);
  if (status.info.state != msg::BenefactorState::kAlive || status.peer == nullptr ||
      status.leaving || !service_.space().usable(id)) {
    return false;
  }
  const std::uint64_t reserve = rank < kRankSole ? 0 : status.info.arena_bytes / kReserve;
  return service_.space().free_bytes(id) >= bytes + reserve &&
         service_.space().largest(id) >= bytes;
}

/// It may be asked for more now.
bool CopyPlanner::is_free(BenefactorId id, Rank rank) const {
  const auto parked = parked_.find(id);
  if (parked != parked_.end() && service_.now() < parked->second) return false;
  const auto paced = paced_.find(id);
  if (rank >= kRankSole && paced != paced_.end() && service_.now() < paced->second) return false;
  const auto load = load_.find(id);
  return load == load_.end() || load->second < (service_.writing() ? kBytesBusy : kBytesIdle);
}

/// `now_only`: only one that may be asked for more now.
std::optional<BenefactorId> CopyPlanner::choose_target(const View& view, std::uint64_t bytes,
                                                       Rank rank, bool now_only) {
  const Extent& primary = view.good.empty() ? view.bad.back() : view.good.front();
  const bool apart = hosts_ >= view.wanted;
  std::set<std::string> hosts;
  for (const Extent& copy : view.good) {
    hosts.insert(service_.benefactors().at(copy.benefactor).info.host_token);
  }
  std::optional<BenefactorId> best;
  std::size_t considered = 0;
  const auto consider = [&](BenefactorId id) {
    if (contains(view.good, id) || !can_take(id, bytes, rank)) return;
    if (apart && hosts.count(service_.benefactors().at(id).info.host_token) > 0) return;
    ++considered;
    if (now_only && !is_free(id, rank)) return;
    if (!best || load_[id] < load_[*best]) best = id;
  };
  // The place of a wrong copy is next to its good ones already.
  for (const Extent& copy : view.bad) {
    if (is_wrong(copy) && service_.benefactors().count(copy.benefactor) > 0) {
      consider(copy.benefactor);
    }
  }
  for (const BenefactorId id : neighbours(primary.benefactor)) {
    if (considered >= kScatter) break;
    consider(id);
  }
  return best;
}

// ---- making them ------------------------------------------------------------------------------

void CopyPlanner::run() {
  ask_lost();
  scan();
  plan();
}

void CopyPlanner::plan() {
  Batches batches;
  std::size_t looked = 0;
  bool stuck = true;
  // After chunks that all have no place now come those behind them.
  auto at = todo_.lower_bound(resume_);
  for (; at != todo_.end() && looked < kLookedMax;) {
    const auto [rank, chunk] = *at++;
    if (rank == kRankLost) break;
    if (busy_.count(chunk) > 0) continue;
    ++looked;
    update(chunk);
    const auto now = ranks_.find(chunk);
    if (now == ranks_.end() || now->second != rank) continue;
    if (place(chunk, rank, batches)) stuck = false;
  }
  const bool more = at != todo_.end() && at->first != kRankLost;
  resume_ = stuck && more ? *at : std::pair<Rank, ChunkIndex>{};
  for (auto& [key, batch] : batches) send(std::move(batch));
}

bool CopyPlanner::place(ChunkIndex chunk, Rank rank, Batches& batches) {
  const View view = view_of(chunk);
  const std::uint64_t bytes = extent_bytes(service_.state().chunks().length(chunk));
  const Extent* from = nullptr;
  for (const Extent& source : view.sources) {
    if (!is_free(source.benefactor, 0)) continue;
    if (from == nullptr || load_[source.benefactor] < load_[from->benefactor]) from = &source;
  }
  if (from == nullptr) return false;
  const auto target = choose_target(view, bytes, rank, true);
  if (!target) {
    const bool undrained = service_.state().chunks().undrained(chunk) > 0;
    if (undrained && service_.now() >= evict_next_ && !choose_target(view, bytes, rank, false)) {
      evict_next_ = service_.now() + kEvictAgain;
      (void)service_.evict(kBatchBytes);
    }
    return false;
  }
  const auto range = service_.space().take(*target, bytes, bytes);
  if (!range) return false;
  Sent& batch = batches[{from->benefactor, *target}];
  batch.source = from->benefactor;
  batch.target = *target;
  batch.items.push_back({chunk, *from, *range});
  batch.bytes += bytes;
  load_[*target] += bytes;
  load_[from->benefactor] += bytes;
  // Held: its place must not be given to another while it is read.
  service_.hold(chunk);
  busy_.insert(chunk);
  if (batch.bytes >= kBatchBytes || batch.items.size() >= kBatchItems) {
    send(std::move(batch));
    batches.erase({from->benefactor, *target});
  }
  return true;
}

void CopyPlanner::send(Sent sent) {
  const std::uint64_t number = ++numbers_made_;
  ClientId& reader = readers_[sent.target];
  if (!reader) reader = ClientId{service_.next_id()};
  msg::CopyExtents request{reader, service_.benefactors().at(sent.source).info, {}};
  for (const Item& item : sent.items) {
    const Chunk chunk = service_.state().chunks().get(item.chunk);
    request.copies.push_back(
        {item.from.offset, item.to.offset, chunk.length, chunk.crc, chunk.name});
  }
  if (const std::uint64_t rate = service_.config().copy_rate_bytes_per_s; rate > 0) {
    const auto time = std::chrono::nanoseconds(sent.bytes * 1'000'000 / (rate / 1000 + 1));
    paced_[sent.target] = std::max(paced_[sent.target], service_.now()) + time;
  }
  rpc::Peer* const peer = service_.peer_of(sent.target);
  sent_.emplace(number, std::move(sent));
  peer->call(std::move(request), limits::kOperationDeadline,
             [this, number, alive = service_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) done(number, answer);
             });
}

void CopyPlanner::done(std::uint64_t number, const rpc::Answer& answer) {
  Sent& sent = sent_.at(number);
  const auto* reply = answer ? std::get_if<msg::CopyExtents::Reply>(&*answer) : nullptr;
  load_[sent.target] -= sent.bytes;
  load_[sent.source] -= sent.bytes;
  if (reply == nullptr) return lose(number);
  if (!reply->failed.empty()) parked_[sent.source] = service_.now() + kParked;
  const auto has = [](const std::vector<std::uint32_t>& list, std::size_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  ChangeCopies command;
  for (std::size_t i = 0; i < sent.items.size(); ++i) {
    const Item& item = sent.items[i];
    // Either side may be at fault: the source looks for itself.
    if (has(reply->corrupt, i)) service_.scrubber().suspect(item.chunk, item.from);
    if (has(reply->corrupt, i) || has(reply->failed, i)) continue;
    const Chunk chunk = service_.state().chunks().get(item.chunk);
    if (chunk.copies.empty()) continue;
    const View view = view_of(item.chunk);
    ChangeCopies::Change change{
        chunk.copies.front(), chunk.name, chunk.length, {sent.target, item.to.offset}, {}};
    if (!view.bad.empty()) change.drop = view.bad.front();
    made_.repaired += is_wrong(change.drop) ? 1 : 0;
    ++made_.copies_made;
    made_.copied_bytes += chunk.length;
    command.changes.push_back(change);
  }
  sent.answered = true;
  if (command.changes.empty()) {
    parked_[sent.source] = service_.now() + kParked;
    return settle(number);
  }
  service_.execute(std::move(command), [this, number](const Result<Outcome>&) { settle(number); });
}

/// Targets that no chunk has taken are free again, and the chunks are let go of.
void CopyPlanner::settle(std::uint64_t number) {
  const Sent sent = std::move(sent_.extract(number).mapped());
  for (const Item& item : sent.items) {
    const auto copies = service_.state().chunks().get(item.chunk).copies;
    const Extent target{sent.target, item.to.offset};
    if (std::find(copies.begin(), copies.end(), target) == copies.end()) {
      service_.space().give(sent.target, item.to);
    }
    busy_.erase(item.chunk);
    service_.release(item.chunk);
    update(item.chunk);
  }
  plan();
}

void CopyPlanner::lose(std::uint64_t number) {
  const Sent sent = std::move(sent_.extract(number).mapped());
  log::warning("benefactor {} did not say whether it has copied from benefactor {}",
               sent.target.value, sent.source.value);
  parked_[sent.target] = parked_[sent.source] = service_.now() + kParked;
  Lost& lost = lost_[number];
  lost.benefactor = sent.target;
  for (const Item& item : sent.items) {
    lost.targets.push_back(item.to);
    busy_.erase(item.chunk);
    service_.release(item.chunk);
    update(item.chunk);
  }
}

/// A benefactor answers in order: with the answer to a later request, nothing of the lost one is
/// under way any more.
void CopyPlanner::ask_lost() {
  for (auto& [number, lost] : lost_) {
    rpc::Peer* const peer = service_.peer_of(lost.benefactor);
    if (peer == nullptr || service_.now() < lost.next) continue;
    lost.next = service_.now() + limits::kOperationDeadline + kParked;
    peer->call(msg::CopyExtents{}, limits::kOperationDeadline,
               [this, key = number, alive = service_.alive()](const rpc::Answer& answer) {
                 if (alive.expired()) return;
                 Lost& asked = lost_.at(key);
                 asked.next = service_.now() + kParked;
                 if (!answer) return;
                 for (const Range& range : asked.targets) {
                   service_.space().give(asked.benefactor, range);
                 }
                 lost_.erase(key);
               });
  }
}

}  // namespace stdchk::manager
