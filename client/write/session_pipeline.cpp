// How the chunks of a session reach the benefactors. session.h has the steps of a chunk.
#include <algorithm>
#include <utility>

#include "client/write/session.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
using Step = OutChunk::Step;

/// Failed writes of one chunk, after which the session fails.
constexpr std::uint32_t kFailuresMax = 16;
constexpr std::uint32_t kFailuresAtOnce = 2;  ///< failures after which a chunk's next attempt waits
constexpr Duration kRetryFirst = 50ms;
constexpr Duration kRetryLast = 1s;
constexpr std::size_t kPlacesInFlightMax = 2;
constexpr std::size_t kBatchTargetMax = 128;
/// How long the first chunk of a batch waits for others.
constexpr Duration kBatchWait = 20ms;
/// How long bytes wait for bytes in front of them of which nothing has come.
constexpr Duration kHoleWait = 50ms;
constexpr Duration kHeldBack = 20ms;     ///< how long writers are held back
constexpr Duration kPlacesWait = 500ms;  ///< how long to wait for space in more failure domains
constexpr Duration kNoSpaceWait = 50ms;  ///< pause between two requests, if the manager names none
/// How long to wait for space when the manager advises to wait.
constexpr Duration kNoSpacePatience = 5s;
/// How long to wait without advice: others may return grants.
constexpr Duration kNoSpaceGrace = 500ms;
constexpr Duration kIdleGrants = 1s;  ///< grants go back after this time without use
constexpr std::uint64_t kFirstWant = limits::kGrantBytesDefault;
constexpr std::uint64_t kGrowth = 4;  ///< each request is this many times what was granted so far
constexpr std::uint64_t kWantMax = 8 * limits::kGiB;
constexpr std::uint32_t kSearchesMax = 3;

/// Returns the state in which a slot counts a chunk that is in this step.
SlotState slot_state(Step step) {
  switch (step) {
    case Step::kHashing:
      return SlotState::kHashing;
    case Step::kWriting:
      return SlotState::kWriting;
    default:
      return SlotState::kPlacing;
  }
}

}  // namespace

void Session::hashed(const OutChunkPtr& chunk) {
  move(chunk->segments, SlotState::kHashing, SlotState::kPlacing);
  place(chunk);
  host_.kick(*this);
}

/// Sends a hashed chunk on: a chunk with a name is looked up first, others get space at once.
void Session::place(const OutChunkPtr& chunk) {
  if (error_.has_value() || chunk->live_bytes == 0) return drop(*chunk, SlotState::kPlacing);
  naming_->saw(chunk->plain_crc, chunk->chunk.length);
  if (!follows_from_content(chunk->chunk.name)) {
    has_unnamed_ = true;
    chunk->step = Step::kCarving;
    to_carve_.push_back(chunk);
    return;
  }
  figures_.bytes_named += chunk->chunk.length;
  host_.totals().named_bytes += chunk->chunk.length;
  remember_similar();
  if (find_known(chunk)) return;
  own_names_[chunk->chunk.name] = chunk;
  chunk->step = Step::kAsking;
  if (to_ask_.empty()) ask_by_ = host_.clock().now() + kBatchWait;
  to_ask_.push_back(chunk);
}

/// True when the same bytes are stored where a benefactor answers, or on their way in this session.
/// The chunk then refers to those.
bool Session::find_known(const OutChunkPtr& chunk) {
  const auto answers = [&](const Extent& copy) { return host_.answers(copy.benefactor); };
  if (auto known = known_.find(chunk->chunk.name);
      known.has_value() && known->length == chunk->chunk.length &&
      std::any_of(known->copies.begin(), known->copies.end(), answers)) {
    found(*chunk);
    chunk->chunk = std::move(*known);
    stored(*chunk, SlotState::kPlacing);
    return true;
  }
  const auto own = own_names_.find(chunk->chunk.name);
  if (own == own_names_.end()) return false;
  const OutChunkPtr target = own->second.lock();
  if (target == nullptr || target->step == Step::kDropped || target->live_bytes == 0 ||
      target->chunk.length != chunk->chunk.length) {
    return false;
  }
  found(*chunk);
  alias(chunk, target);
  return true;
}

/// Makes all that refers to `chunk` refer to `target`, and drops `chunk`.
void Session::alias(const OutChunkPtr& chunk, const OutChunkPtr& target) {
  const std::uint64_t end = chunk->file_offset + chunk->chunk.length;
  auto entry = overlay_.entries().lower_bound(chunk->file_offset);
  for (; entry != overlay_.entries().end() && entry->first < end; ++entry) {
    if (entry->second.piece.chunk != chunk) continue;
    entry->second.piece.chunk = target;
    chunk->live_bytes -= entry->second.length;
    target->live_bytes += entry->second.length;
  }
  STDCHK_ASSERT(chunk->live_bytes == 0);
  // A sync that waits for these bytes must now wait for the slots of the target.
  for (const Segment& to : target->segments) {
    for (const Segment& from : chunk->segments) {
      if (to.slot != nullptr && from.slot != nullptr) {
        to.slot->age = std::min(to.slot->age, from.slot->age);
      }
    }
  }
  drop(*chunk, SlotState::kPlacing);
}

void Session::remember_similar() {
  if (similar_ == nullptr || similar_read_) return;
  if (similar_->error.has_value()) {
    similar_.reset();
    return;
  }
  if (!similar_->complete) return host_.maps().load_next(similar_);
  similar_read_ = true;
  known_.learn(similar_->map);
  naming_->compare_with(known_.named_all());
}

/// Gives up comparing with the previous image: while pinned, its chunks cannot be freed. Asks the
/// manager for the chunks found in it, so that they are held for this session.
void Session::give_up_similar() {
  if (similar_ == nullptr) return;
  known_.clear();
  given_up_ = std::move(similar_);
  for (const auto& [offset, entry] : overlay_.entries()) {
    const OutChunkPtr& chunk = entry.piece.chunk;
    if (chunk == nullptr || chunk->step != Step::kStored || chunk->ours || chunk->sought ||
        !chunk->chunk.name.is_named()) {
      continue;
    }
    chunk->sought = true;
    to_find_.push_back(chunk);
  }
  host_.kick(*this);
}

/// Counts a chunk that the pool, or this session, already had.
void Session::found(const OutChunk& chunk) {
  figures_.bytes_existing += chunk.chunk.length;
  host_.totals().equal_bytes += chunk.chunk.length;
  naming_->judge(chunk.plain_crc, chunk.chunk.length, true);
}

void Session::stored(OutChunk& chunk, SlotState from) {
  chunk.step = Step::kStored;
  if (chunk.ours && chunk.chunk.copies.size() < places_) {
    figures_.bytes_short += chunk.chunk.length;
  }
  move(std::exchange(chunk.segments, {}), from, SlotState::kStored);
  figures_.open_to_stored = host_.clock().now() - opened_;
  if (chunk.live_bytes == 0) dead(chunk);
  const auto keep = std::move(chunk.session);
  finish_chunk();
}

void Session::drop(OutChunk& chunk, SlotState from) {
  chunk.step = Step::kDropped;
  move(std::exchange(chunk.segments, {}), from, SlotState::kStored);
  const auto keep = std::move(chunk.session);
  finish_chunk();
}

void Session::finish_chunk() {
  STDCHK_ASSERT(pipeline_ > 0);
  --pipeline_;
  if (commit_done_ != nullptr) ++commit_done_->moved;
  finish_syncs();
  host_.kick(*this);
  host_.shared().changed.notify_all();
}

// ---- reactor's thread -------------------------------------------------------------------------

void Session::plan(Work& work) {
  if (state_ == State::kEnded) return;
  const auto keep = shared_from_this();
  plan_holes();
  for (ScanPtr& scan : to_scan_) work.search.push_back({keep, std::move(scan)});
  to_scan_.clear();
  plan_hash(work);
  plan_checksum(work);
  if (resume_ != Resume::kNone && !error_.has_value()) return plan_resume(work);
  plan_place(work);
  plan_search(work);
  plan_writes(work);
  plan_grants(work);
  plan_return(work);
  plan_commit(work);
  plan_end(work);
}

/// Ends the waits for missing bytes. Threads that write in order leave a hole only until they get a
/// processor again.
void Session::plan_holes() {
  const Time now = host_.clock().now();
  if (held_back_ != Time{} && now - held_back_ >= kHeldBack) {
    out_of_order_ = false;
    stop_holding_back();
  }
  const Time since = give_up_holes(kHoleWait);
  Time due = since == Time{} ? Time::max() : since + kHoleWait;
  if (held_back_ != Time{}) due = std::min(due, held_back_ + kHeldBack);
  if (due == Time::max() || due == hole_timer_) return;
  hole_timer_ = due;
  host_.kick_after(*this, due - now);
}

/// Returns the chunks that are to be hashed, and drops those that nobody needs.
std::vector<OutChunkPtr> Session::take_to_hash() {
  std::vector<OutChunkPtr> chunks;
  for (; !to_hash_.empty(); to_hash_.pop_front()) {
    OutChunkPtr& chunk = to_hash_.front();
    if (error_.has_value() || chunk->live_bytes == 0) {
      drop(*chunk, SlotState::kHashing);
    } else {
      chunks.push_back(std::move(chunk));
    }
  }
  return chunks;
}

/// Groups short chunks: several are named faster together.
void Session::plan_hash(Work& work) {
  std::uint64_t group_bytes = kNamedTogetherBytes;
  for (OutChunkPtr& chunk : take_to_hash()) {
    group_bytes += chunk->chunk.length;
    if (group_bytes > kNamedTogetherBytes) {
      work.hash.emplace_back();
      group_bytes = chunk->chunk.length;
    }
    work.hash.back().push_back(std::move(chunk));
  }
}

/// Passes on one chunk at a time: each is copied before the next one enters the cache.
void Session::plan_checksum(Work& work) {
  if (to_checksum_.empty()) return;
  work.checksum.push_back(std::move(to_checksum_.front()));
  to_checksum_.pop_front();
  if (!to_checksum_.empty()) host_.kick(*this);
}

/// True when enough chunks wait for a call to pay, or when something waits for them.
bool Session::batch_is_due() {
  // A batch holds at most a quarter of the window.
  const std::size_t chunks_a_slot = content_cuts_ ? 4 : 1;
  const std::size_t target =
      chunks_a_slot * std::min(batch_target_, host_.window().slot_count() / 4);
  if (to_ask_.size() >= target || error_.has_value()) return true;
  if (places_in_flight_ > 0) return false;
  if (commit_ != CommitStep::kNone || !syncs_.empty()) return true;
  const Duration left = ask_by_ - host_.clock().now();
  if (left <= Duration::zero()) return true;
  if (ask_timer_ != ask_by_) host_.kick_after(*this, left);
  ask_timer_ = ask_by_;
  return false;
}

void Session::plan_place(Work& work) {
  while (!to_ask_.empty() && places_in_flight_ < kPlacesInFlightMax && state_ != State::kEnded) {
    if (!batch_is_due()) return;
    std::vector<OutChunkPtr> batch;
    while (!to_ask_.empty() && batch.size() < limits::kPlaceBatchMax) {
      OutChunkPtr chunk = std::move(to_ask_.front());
      to_ask_.pop_front();
      if (error_.has_value() || chunk->live_bytes == 0) {
        drop(*chunk, SlotState::kPlacing);
        continue;
      }
      chunk->step = Step::kAsked;
      batch.push_back(std::move(chunk));
    }
    if (batch.empty()) return;
    batch_target_ = std::min(batch_target_ * 2, kBatchTargetMax);
    // While the pool is full, chunks are only looked up, and no space is asked for.
    const bool wants = !want_in_flight_ && host_.clock().now() >= grants_not_before_;
    send_place(work, std::move(batch), wants ? wanted_bytes(true) : 0);
  }
}

bool Session::find_again(const OutChunkPtr& chunk) {
  if (error_.has_value() || chunk->ours || !chunk->chunk.name.is_named()) return false;
  if (chunk->sought) return true;
  if (chunk->searches == kSearchesMax) return false;
  ++chunk->searches;
  chunk->sought = true;
  to_find_.push_back(chunk);
  host_.kick(*this);
  return true;
}

void Session::plan_search(Work& work) {
  if (to_find_.empty()) {
    // The pool may have space now: patience starts anew.
    if (given_up_ != nullptr) no_space_since_ = host_.clock().now();
    return given_up_.reset();
  }
  msg::Place place;
  place.session = id_;
  std::vector<OutChunkPtr> batch;
  while (!to_find_.empty() && batch.size() < limits::kPlaceBatchMax) {
    place.chunks.push_back({to_find_.back()->chunk.name, to_find_.back()->chunk.length});
    batch.push_back(std::move(to_find_.back()));
    to_find_.pop_back();
  }
  ++calls_in_flight_;
  ++figures_.manager_calls;
  work.calls.push_back({std::move(place), [self = shared_from_this(), batch = std::move(batch),
                                           given_up = given_up_](rpc::Answer answer) mutable {
                          const Lock lock(self->host_.shared().mutex);
                          self->on_found(batch, answer);
                          // Unless the manager holds the chunks, the image in which they were found
                          // must stay pinned.
                          if (!answer.has_value()) self->similar_ = std::move(given_up);
                          batch.clear();
                          given_up.reset();
                        }});
}

void Session::on_found(const std::vector<OutChunkPtr>& batch, const rpc::Answer& answer) {
  --calls_in_flight_;
  const auto* reply = answer.has_value() ? std::get_if<msg::Place::Reply>(&*answer) : nullptr;
  for (const OutChunkPtr& chunk : batch) chunk->sought = false;
  if (reply != nullptr) {
    for (const auto& found : reply->existing) {
      if (found.index < batch.size()) batch[found.index]->chunk.copies = found.chunk.copies;
    }
  }
  host_.kick(*this);
  host_.shared().changed.notify_all();
}

void Session::plan_writes(Work& work) {
  const bool waits = !error_.has_value() && host_.clock().now() < writes_not_before_;
  while (!to_carve_.empty() && !waits) {
    OutChunkPtr chunk = to_carve_.front();
    auto& copies = chunk->chunk.copies;
    if (error_.has_value() || chunk->live_bytes == 0) {
      to_carve_.pop_front();
      give_up(*chunk);
      continue;
    }
    if (waits_for_places(*chunk)) return;
    const auto extents =
        grants_.carve(extent_bytes(chunk->chunk.length), avoid_, places_ - copies.size(), copies);
    if (extents.empty() && copies.empty()) return;
    to_carve_.pop_front();
    if (extents.empty()) {
      stored(*chunk, SlotState::kPlacing);
      continue;
    }
    no_space_ = 0;
    grants_used_ = host_.clock().now();
    copies.insert(copies.end(), extents.begin(), extents.end());
    write(chunk, extents, work);
  }
}

/// Ends a chunk that nobody needs. If it has written copies it counts as stored, so that dead() can
/// give back their extents.
void Session::give_up(OutChunk& chunk) {
  if (chunk.chunk.copies.empty()) return drop(chunk, SlotState::kPlacing);
  stored(chunk, SlotState::kPlacing);
}

/// True while the chunk waits for space for all its places. The wait ends with one answer of the
/// manager, or after kPlacesWait.
bool Session::waits_for_places(const OutChunk& chunk) {
  if (places_ == 1) return false;
  const auto& copies = chunk.chunk.copies;
  const std::uint64_t bytes = extent_bytes(chunk.chunk.length);
  if (grants_.has_places(bytes, avoid_, places_ - copies.size(), copies)) {
    fewer_places_ = false;
    short_of_places_ = {};
    return false;
  }
  if (fewer_places_) return false;
  const Time now = host_.clock().now();
  if (short_of_places_ == Time{}) {
    short_of_places_ = now;
    host_.kick_after(*this, kPlacesWait);
  }
  fewer_places_ = now - short_of_places_ >= kPlacesWait;
  return !fewer_places_;
}

/// Starts one write to each place, all from the same bytes.
void Session::write(const OutChunkPtr& chunk, const std::vector<Extent>& places, Work& work) {
  chunk->ours = true;
  chunk->step = Step::kWriting;
  chunk->writing = static_cast<std::uint32_t>(places.size());
  move(chunk->segments, SlotState::kPlacing, SlotState::kWriting);
  const ExtentHeader header{
      chunk->chunk.name, chunk->chunk.length, chunk->chunk.crc, file_,
      static_cast<std::uint32_t>(chunk->file_offset / host_.window().chunk_bytes())};
  const auto& [first, second] = chunk->segments;
  std::byte* const data = first.slot->data + first.offset;
  MutableByteSpan more;
  if (second.slot != nullptr) more = {second.slot->data + second.offset, second.length};
  std::array<MutableByteSpan, transport::kPiecesMax> pieces;
  if (first.offset == 0) {
    // The header lies directly in front of the data: one piece holds both.
    std::byte* const head = data - limits::kExtentHeaderBytes;
    encode_extent_header(header, head);
    pieces = {MutableByteSpan(head, limits::kExtentHeaderBytes + first.length), more, {}};
  } else {
    std::byte* const head =
        first.slot->data - (chunk->order + 2) * std::size_t{limits::kExtentHeaderBytes};
    encode_extent_header(header, head);
    pieces = {MutableByteSpan(head, limits::kExtentHeaderBytes),
              MutableByteSpan(data, first.length), more};
  }
  for (const Extent& place : places) {
    auto one = std::make_unique<ChunkWrite>();
    one->chunk = chunk;
    one->is_write = true;
    one->at = place;
    one->memory = &host_.window_memory();
    one->pieces = pieces;
    figures_.bytes_sent += limits::kExtentHeaderBytes + chunk->chunk.length;
    ++in_transport_;
    work.write.push_back(std::move(one));
  }
}

/// Returns the benefactors that have copies of the first waiting chunk. Space beside them also
/// serves other chunks with the same copies.
std::vector<BenefactorId> Session::beside() const {
  std::vector<BenefactorId> out;
  if (to_carve_.empty()) return out;
  for (const Extent& copy : to_carve_.front()->chunk.copies) out.push_back(copy.benefactor);
  return out;
}

/// Bytes that waiting chunks need. If `beside` is not empty, counts only chunks whose copies are on
/// exactly these benefactors.
std::uint64_t Session::needed_bytes(const std::vector<BenefactorId>& beside) const {
  std::uint64_t need = 0;
  for (const OutChunkPtr& chunk : to_carve_) {
    const auto& copies = chunk->chunk.copies;
    if (!beside.empty() && !std::ranges::equal(copies, beside, {}, &Extent::benefactor)) continue;
    need += (places_ - copies.size()) * extent_bytes(chunk->chunk.length);
  }
  return need;
}

/// The bytes to ask for; 0 when there is enough space.
std::uint64_t Session::wanted_bytes(bool asking) const {
  const auto held = beside();
  const std::uint64_t need = needed_bytes(held);
  if (!held.empty()) return need;
  const std::uint64_t chunk = extent_bytes(host_.window().chunk_bytes());
  const std::uint64_t window = host_.window().slot_count() * chunk * places_;
  const std::uint64_t low = std::min(window, grants_.granted_bytes() / 2) / chunk;
  const bool is_low = grants_.room_for(chunk, avoid_, low) < low;
  if (need == 0 && !is_low && !(asking && grants_.granted_bytes() == 0)) return 0;
  if (no_space_ > 0) return need;
  // A file under its last commit needs space only for chunks that wait.
  if (commit_ends_ && commit_ != CommitStep::kNone) return need;
  if (shortage_) return std::max(need, std::min(window, limits::kGrantBytesDefault));
  // A session takes only a share of the pool ahead of need, because others write too.
  const std::uint64_t share = std::max(host_.arena_bytes_total() / 4, chunk);
  return std::max(
      need, std::min({std::max(kFirstWant, kGrowth * grants_.granted_bytes()), share, kWantMax}));
}

void Session::plan_grants(Work& work) {
  if (error_.has_value() || want_in_flight_) return;
  // A session that writes nothing more gets nothing ahead.
  if (to_carve_.empty() && (state_ != State::kOpen || (pipeline_ == 0 && filling_.empty()))) return;
  if (host_.clock().now() < grants_not_before_) return;
  const std::uint64_t want = wanted_bytes(false);
  if (want > 0) send_place(work, {}, want);
}

/// Returns grants that were unused for kIdleGrants to the manager, for other sessions.
void Session::plan_return(Work& work) {
  if (state_ != State::kOpen || error_.has_value() || grants_.free_bytes() == 0) return;
  const Time now = host_.clock().now();
  if (grants_used_ == Time{}) grants_used_ = now;
  if (now < idle_check_at_) return;
  if (idle_check_at_ != Time{} && now - grants_used_ >= kIdleGrants) {
    const auto unused = grants_.drop_untouched();
    returned_.insert(returned_.end(), unused.begin(), unused.end());
    if (!unused.empty()) send_place(work, {}, 0);
    idle_check_at_ = {};
    return;
  }
  idle_check_at_ = now + kIdleGrants;
  host_.kick_after(*this, kIdleGrants);
}

void Session::send_place(Work& work, std::vector<OutChunkPtr> batch, std::uint64_t want) {
  msg::Place place;
  place.session = id_;
  place.want_bytes = want;
  const OutChunkPtr waiting = to_carve_.empty() ? nullptr : to_carve_.front();
  place.unit_bytes = static_cast<std::uint32_t>(
      extent_bytes(waiting == nullptr ? host_.window().chunk_bytes() : waiting->chunk.length));
  place.avoid.assign(avoid_.begin(), avoid_.end());
  if (want > 0) place.beside = beside();
  place.returned.swap(returned_);
  for (const OutChunkPtr& chunk : batch) {
    place.chunks.push_back({chunk->chunk.name, chunk->chunk.length});
  }
  if (!batch.empty()) ++places_in_flight_;
  if (want > 0) {
    want_in_flight_ = true;
    asks_for_places_ = short_of_places_ != Time{};
  }
  ++calls_in_flight_;
  ++figures_.manager_calls;
  work.calls.push_back({std::move(place), [self = shared_from_this(), batch = std::move(batch),
                                           want, life = life_](rpc::Answer answer) mutable {
                          const Lock lock(self->host_.shared().mutex);
                          self->on_placed(batch, want, life, std::move(answer));
                          batch.clear();
                        }});
}

void Session::on_placed(const std::vector<OutChunkPtr>& batch, std::uint64_t want,
                        std::uint64_t life, rpc::Answer answer) {
  --calls_in_flight_;
  if (!batch.empty()) --places_in_flight_;
  if (want > 0) {
    want_in_flight_ = false;
    fewer_places_ = fewer_places_ || asks_for_places_;
  }
  host_.kick(*this);
  host_.shared().changed.notify_all();
  auto* reply = answer.has_value() ? std::get_if<msg::Place::Reply>(&*answer) : nullptr;
  const bool no_space = !answer.has_value() && answer.error().error.code == Code::kNoSpace;
  const bool again = asks_again(life, answer);
  if (no_space || again) {
    // The next call looks these chunks up again.
    for (const OutChunkPtr& chunk : batch) {
      chunk->step = Step::kAsking;
      to_ask_.push_back(chunk);
    }
    if (!again) on_no_space(answer.error(), want);
    return;
  }
  if (reply == nullptr) {
    fail_with(answer.has_value() ? Error{Code::kMalformed, 0, "client.place"}
                                 : answer.error().error);
    for (const OutChunkPtr& chunk : batch) drop(*chunk, SlotState::kPlacing);
    return;
  }
  std::uint64_t granted = 0;
  for (const Grant& grant : reply->grants) granted += grant.length;
  grants_.add(reply->grants);
  if (granted > 0) grants_used_ = host_.clock().now();
  shortage_ = shortage_ || granted < want / 2;
  std::vector<const Chunk*> existing(batch.size(), nullptr);
  for (const auto& found : reply->existing) {
    if (found.index < batch.size()) existing[found.index] = &found.chunk;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const OutChunkPtr& chunk = batch[i];
    if (error_.has_value() || chunk->live_bytes == 0) {
      drop(*chunk, SlotState::kPlacing);
    } else if (existing[i] != nullptr && existing[i]->length == chunk->chunk.length) {
      found(*chunk);
      const ChunkName name = chunk->chunk.name;
      chunk->chunk = *existing[i];
      chunk->chunk.name = name;
      stored(*chunk, SlotState::kPlacing);
    } else {
      naming_->judge(chunk->plain_crc, chunk->chunk.length, false);
      chunk->step = Step::kCarving;
      to_carve_.push_back(chunk);
    }
  }
  if (want > 0 && granted == 0 && !to_carve_.empty()) {
    on_no_space(rpc::Failure{Error{Code::kNoSpace, 0, "client.place"}, {}, {}}, want);
  }
}

/// Handles a pool that is full, or full outside `avoid_`. First the session asks for less, then it
/// tries avoided benefactors again. Then it waits as long as the manager advises, and finally it
/// fails.
void Session::on_no_space(const rpc::Failure& failure, std::uint64_t) {
  const Time now = host_.clock().now();
  if (fewer_places_ && can_do_with_fewer()) return;
  shortage_ = true;
  give_up_similar();
  if (no_space_++ == 0) {
    no_space_since_ = now;
    return;  // plan_grants() asks again now, only for needed bytes
  }
  // Return unused grants: they may be too small for this chunk, but suit other sessions.
  const auto unused = grants_.drop_untouched();
  returned_.insert(returned_.end(), unused.begin(), unused.end());
  if (!avoid_.empty() && no_space_ == 2) {
    avoid_.clear();
    return;
  }
  const bool advised = failure.retry_after > Duration::zero() || !avoid_.empty();
  const Duration patience = advised ? Duration(kNoSpacePatience) : Duration(kNoSpaceGrace);
  if (now - no_space_since_ > patience) return fail_with(failure.error);
  const Duration wait = std::max(failure.retry_after, Duration(kNoSpaceWait));
  grants_not_before_ = now + wait;
  host_.kick_after(*this, wait);
}

/// True when the first waiting chunk has a copy, or space for one: it can do with fewer places.
bool Session::can_do_with_fewer() const {
  if (to_carve_.empty()) return false;
  const Chunk& chunk = to_carve_.front()->chunk;
  return !chunk.copies.empty() || grants_.room_for(extent_bytes(chunk.length), avoid_, 1) > 0;
}

void ChunkWrite::finished(Status status) {
  // Keeps the session and this write alive until the function returns.
  const SessionPtr owner = chunk->session;
  const std::unique_ptr<ChunkWrite> keep = std::move(self);
  const Lock lock(owner->shared().mutex);
  owner->written(*this, status);
}

void Session::written(const ChunkWrite& write, const Status& status) {
  --in_transport_;
  host_.kick(*this);
  OutChunk& chunk = *write.chunk;
  std::vector<Extent>& copies = chunk.chunk.copies;
  if (!follows_from_content(chunk.chunk.name)) moves_itself_ = write.moved_here;
  if (!status.has_value()) {
    // The write may still land: the extent must stay unused until a fence.
    abandoned_.push_back(write.at);
    std::erase(copies, write.at);
    ++chunk.failures;
    avoid(write, status.error());
  }
  if (--chunk.writing > 0) return;  // the last write to end decides
  // After repeated failures, the copies that exist must do.
  const bool enough = copies.size() == places_ || chunk.failures > kFailuresAtOnce ||
                      error_.has_value() || chunk.live_bytes == 0;
  if (!copies.empty() && enough) return stored(chunk, SlotState::kWriting);
  if (!status.has_value() && chunk.failures > kFailuresMax) fail_with(status.error());
  if (error_.has_value() || chunk.live_bytes == 0) return drop(chunk, SlotState::kWriting);
  move(chunk.segments, SlotState::kWriting, SlotState::kPlacing);
  chunk.step = Step::kCarving;
  to_carve_.push_front(write.chunk);
  if (chunk.failures <= kFailuresAtOnce) return;
  // An attempt may fail at once. Wait, so that benefactors can come back before the last attempt.
  const Duration wait = std::min<Duration>(
      kRetryLast, kRetryFirst * (1U << std::min(chunk.failures - kFailuresAtOnce, 5U)));
  writes_not_before_ = host_.clock().now() + wait;
  host_.kick_after(*this, wait);
}

/// Avoids the benefactor of a failed write, unless another rail leads to it.
void Session::avoid(const ChunkWrite& write, const Error& why) {
  const BenefactorId benefactor = write.at.benefactor;
  if (write.has_other_rail || !avoid_.insert(benefactor).second) return;
  log::warning("file {}: benefactor {} is avoided from now on: {}", file_.value, benefactor.value,
               describe(why));
  const auto unused = grants_.drop(benefactor);
  returned_.insert(returned_.end(), unused.begin(), unused.end());
}

void Session::benefactor_gone(BenefactorId benefactor) {
  if (state_ == State::kEnded || error_.has_value()) return;
  grants_.drop(benefactor);
  avoid_.insert(benefactor);
  // A commit may have been under way when the manager ended. The new manager says whether it was
  // done, and checks what is stored.
  if (resume_ != Resume::kNone) return;
  for (const auto& [offset, entry] : overlay_.entries()) {
    const OutChunkPtr& chunk = entry.piece.chunk;
    if (chunk == nullptr || !chunk->ours) continue;
    auto& copies = chunk->chunk.copies;
    std::erase_if(copies, [&](const Extent& copy) { return copy.benefactor == benefactor; });
    if (copies.empty() && chunk->step == Step::kStored) {
      return fail_with(Error{Code::kDataLost, 0, "client.session: a benefactor ended"});
    }
  }
}

void Session::fenced() {
  if (state_ == State::kEnded) return;
  fail_with(Error{Code::kFenced, 0, "client.session"});
  close_sent_ = true;  // the manager has ended it
}

/// Fails the session, and drops what is not stored. Chunks that are with hash threads, calls or the
/// transport are dropped when they come back.
void Session::fail_with(Error why) {
  if (error_.has_value()) return;
  error_ = why;
  if (why.code != Code::kCancelled) {
    log::warning("file {}: the session has failed: {}", file_.value, describe(why));
  }
  seal_all();
  for (auto* queue : {&to_hash_, &to_checksum_, &to_ask_, &to_carve_}) {
    std::deque<OutChunkPtr> chunks;
    chunks.swap(*queue);
    for (const OutChunkPtr& chunk : chunks) drop(*chunk, slot_state(chunk->step));
  }
  if (commit_done_ != nullptr && !commit_in_flight_) finish_commit(fail(why));
  finish_syncs();
  host_.kick(*this);
  host_.shared().changed.notify_all();
}

}  // namespace stdchk::client
