#include "manager/arenas/garbage_collector.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kPacedBytesPerS = 128 * limits::kMiB;  // costs 1 % of one core
constexpr ChunkIndex kVisited = 65536;

std::uint64_t usable_bytes(std::uint64_t arena_bytes) {
  return arena_bytes / limits::kExtentAlignment * limits::kExtentAlignment;
}

bool contains(const std::vector<Range>& ascending, std::uint64_t offset) {
  const auto after =
      std::upper_bound(ascending.begin(), ascending.end(), offset,
                       [](std::uint64_t at, const Range& range) { return at < range.offset; });
  return after != ascending.begin() && offset < std::prev(after)->end();
}

}  // namespace

msg::Request GarbageCollector::later() { return msg::ForgetExtents{}; }

std::uint64_t GarbageCollector::start(bool execute) {
  if (!running_) {
    begin(execute, false);
    return round_;
  }
  paced_ = false;
  asked_ = asked_.value_or(false) || execute;
  return round_ + 1;
}

bool GarbageCollector::ended(std::uint64_t round) const {
  const bool to_come = asked_ && round == round_ + 1;
  return !to_come && !(running_ && round == round_);
}

void GarbageCollector::begin(bool execute, bool paced) {
  ++round_;
  running_ = true;
  execute_ = execute;
  paced_ = paced;
  cursor_ = 0;
  lanes_.clear();
  missing_.clear();
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.info.state == msg::BenefactorState::kGone) continue;
    lanes_[id].figures.benefactor = id;
  }
}

void GarbageCollector::run() {
  lost_.ask();
  const Duration period = pool_.config().gc_period;
  if (!next_) next_ = pool_.now() + period;
  if (!running_ && asked_) {
    begin(*std::exchange(asked_, std::nullopt), false);
  } else if (!running_ && period > Duration::zero() && pool_.now() >= *next_) {
    begin(true, true);
  }
  if (!running_) return;
  bool done = true;
  const bool reported =
      std::ranges::any_of(lanes_, [](const auto& lane) { return lane.second.reply.has_value(); });
  const ByArena now = reported ? claims() : ByArena{};
  for (auto& [id, lane] : lanes_) {
    if (lane.reply) {
      const auto of_arena = now.find(id);
      examine(id, lane, of_arena == now.end() ? std::vector<Claim>{} : of_arena->second);
    }
    if (!lane.done && !lane.in_flight && pool_.now() >= lane.next) ask(id, lane);
    done &= lane.done;
  }
  if (!done) return;
  find_missing();
  const bool of_round = std::ranges::any_of(
      forgetting_, [&](const auto& each) { return each.second.round == round_; });
  if (cursor_ == kNoChunk && !of_round) end();
}

void GarbageCollector::end() {
  running_ = false;
  next_ = pool_.now() + pool_.config().gc_period;
  arenas_.clear();
  std::uint64_t forgotten = 0;
  std::uint64_t missing = 0;
  for (const auto& [id, lane] : lanes_) {
    arenas_.push_back(lane.figures);
    forgotten += lane.figures.forgotten_extents;
    missing += lane.figures.missing_extents;
  }
  lanes_.clear();
  missing_.clear();
  if (forgotten > 0) log::info("{} extents that nothing refers to were forgotten", forgotten);
  if (missing > 0) log::warning("{} places in arenas lack an extent", missing);
}

/// Returns all claims except those of chunks, which are by far the most.
GarbageCollector::ByArena GarbageCollector::claims() const {
  ByArena out;
  for (const Claim& claim : claims_.all_but_chunks()) out[claim.benefactor].push_back(claim);
  for (auto& [id, each] : out) {
    std::sort(each.begin(), each.end(),
              [](const Claim& a, const Claim& b) { return a.range < b.range; });
  }
  return out;
}

void GarbageCollector::ask(BenefactorId benefactor, Lane& lane) {
  rpc::Peer* const peer = pool_.peer_of(benefactor);
  if (peer == nullptr) {
    lane.done = true;
    return;
  }
  lane.in_flight = true;
  peer->call(msg::ReportExtents{lane.offset, usable_bytes(pool_.space().arena_bytes(benefactor))},
             limits::kOperationDeadline,
             [this, benefactor, round = round_, alive = pool_.alive()](rpc::Answer answer) {
               if (alive.expired() || !running_ || round != round_) return;
               Lane& asked = lanes_.at(benefactor);
               asked.in_flight = false;
               auto* reply = answer ? std::get_if<msg::ReportExtents::Reply>(&*answer) : nullptr;
               asked.done = reply == nullptr;
               if (reply != nullptr) asked.reply = std::move(*reply);
             });
}

void GarbageCollector::examine(BenefactorId benefactor, Lane& lane,
                               const std::vector<Claim>& claims) {
  const msg::ReportExtents::Reply reply = std::move(*std::exchange(lane.reply, std::nullopt));
  const std::uint64_t arena_bytes = usable_bytes(pool_.space().arena_bytes(benefactor));
  if (!is_possible(reply, lane.offset, arena_bytes)) {
    log::warning("benefactor {} has reported extents that cannot be", benefactor.value);
    lane.done = true;
    return;
  }
  const ArenaPage page{{lane.offset, reply.end - lane.offset}, reply.extents, arena_bytes};
  const GarbagePlan plan = plan_garbage(page, claims, lane.next_extent);
  // An extent written since the report appears when the page is requested again.
  if (!plan.missing.empty() && !std::exchange(lane.again, true)) return;
  const auto kept = [&](ClaimKind kind) { return plan.kept[static_cast<std::size_t>(kind)]; };
  msg::CollectGarbage::Arena& figures = lane.figures;
  figures.garbage_extents += plan.garbage.size();
  figures.garbage_bytes += plan.garbage_bytes;
  figures.used_extents += kept(ClaimKind::kUsed);
  figures.granted_extents += kept(ClaimKind::kGranted);
  figures.waiting_extents += kept(ClaimKind::kQuarantined) + kept(ClaimKind::kFreeing);
  figures.copying_extents += kept(ClaimKind::kReserved);
  figures.missing_extents += plan.missing.size();
  if (execute_) {
    if (!plan.garbage.empty()) forget(benefactor, plan.garbage);
    if (!plan.missing.empty()) {
      auto& missing = missing_[benefactor];
      missing.insert(missing.end(), plan.missing.begin(), plan.missing.end());
    }
  }
  lane.again = false;
  lane.offset = reply.end;
  lane.next_extent = plan.next_extent;
  lane.done = figures.whole = reply.end == arena_bytes;
  const std::uint64_t ns = page.range.length * 1000 / (kPacedBytesPerS / 1'000'000);
  if (paced_) lane.next = pool_.now() + std::chrono::nanoseconds(ns);
}

/// Must run in the turn in which the claims were taken. The taken ranges are not granted until they
/// are given back.
void GarbageCollector::forget(BenefactorId benefactor,
                              const std::vector<msg::FoundExtent>& garbage) {
  rpc::Peer* const peer = pool_.peer_of(benefactor);
  if (peer == nullptr) return;
  msg::ForgetExtents request;
  std::vector<Range> ranges;
  for (const msg::FoundExtent& each : garbage) {
    const Range range{each.offset, limits::kExtentHeaderBytes};
    // Fails in an arena that clients of an earlier epoch may still write to.
    if (!pool_.space().take_exactly(benefactor, range)) continue;
    request.extents.push_back(each);
    ranges.push_back(range);
  }
  if (ranges.empty()) return;
  forgetting_[++forgets_made_] = {benefactor, round_, std::move(ranges)};
  peer->call(std::move(request), limits::kOperationDeadline,
             [this, key = forgets_made_, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) forgotten(key, answer);
             });
}

void GarbageCollector::forgotten(std::uint64_t number, const rpc::Answer& answer) {
  const Forgetting done = std::move(forgetting_.extract(number).mapped());
  const auto* reply = answer ? std::get_if<msg::ForgetExtents::Reply>(&*answer) : nullptr;
  if (reply == nullptr) return lost_.add(done.benefactor, done.ranges);
  for (const Range& range : done.ranges) pool_.space().release(done.benefactor, range);
  const auto lane = lanes_.find(done.benefactor);
  if (done.round == round_ && lane != lanes_.end()) {
    lane->second.figures.forgotten_extents += reply->forgotten;
  }
}

/// Makes a step of a walk over all chunks: chunks know their places, but places
/// do not know their chunks.
void GarbageCollector::find_missing() {
  if (cursor_ == kNoChunk) return;
  if (missing_.empty()) {
    cursor_ = kNoChunk;
    return;
  }
  cursor_ = pool_.state().chunks().visit_some(cursor_, kVisited, [this](ChunkIndex chunk) {
    for (const Extent& copy : pool_.state().chunks().get(chunk).copies) {
      const auto missing = missing_.find(copy.benefactor);
      if (missing == missing_.end() || !contains(missing->second, copy.offset)) continue;
      if (!pool_.is_wrong(copy)) scrubber_.queue_suspected(chunk, copy);
    }
  });
}

}  // namespace stdchk::manager
