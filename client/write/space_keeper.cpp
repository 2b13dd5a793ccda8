#include "client/write/space_keeper.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

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

}  // namespace

bool SpaceKeeper::waits_for_places(const OutChunk& chunk) {
  if (core_.places == 1) return false;
  const auto& copies = chunk.chunk.copies;
  const std::uint64_t bytes = extent_bytes(chunk.chunk.length);
  if (grants_.has_places(bytes, avoid_, core_.places - copies.size(), copies)) {
    fewer_places_ = false;
    short_of_places_ = {};
    return false;
  }
  if (fewer_places_) return false;
  const Time now = core_.now();
  if (short_of_places_ == Time{}) {
    short_of_places_ = now;
    core_.schedule_after(kPlacesWait);
  }
  fewer_places_ = now - short_of_places_ >= kPlacesWait;
  return !fewer_places_;
}

std::vector<Extent> SpaceKeeper::carve(const Chunk& chunk) {
  auto extents = grants_.carve(extent_bytes(chunk.length), avoid_,
                               core_.places - chunk.copies.size(), chunk.copies);
  if (!extents.empty()) {
    no_space_ = 0;
    used_at_ = core_.now();
    has_returned_grants_ = false;
  }
  return extents;
}

void SpaceKeeper::avoid(BenefactorId benefactor, const Error& why) {
  if (!avoid_.insert(benefactor).second) return;
  log::warning("file {}: benefactor {} is avoided from now on: {}", core_.file.value,
               benefactor.value, describe(why));
  const auto unused = grants_.drop(benefactor);
  returned_.insert(returned_.end(), unused.begin(), unused.end());
}

void SpaceKeeper::benefactor_gone(BenefactorId benefactor) {
  grants_.drop(benefactor);
  avoid_.insert(benefactor);
}

/// Returns the benefactors that have copies of the first waiting chunk. Space beside them also
/// serves other chunks with the same copies.
std::vector<BenefactorId> SpaceKeeper::benefactors_of_first_chunk(const Waiting& waiting) {
  std::vector<BenefactorId> out;
  if (waiting.empty()) return out;
  for (const Extent& copy : waiting.front()->chunk.copies) out.push_back(copy.benefactor);
  return out;
}

/// Bytes that waiting chunks need. If `beside` is not empty, counts only chunks whose copies are on
/// exactly these benefactors.
std::uint64_t SpaceKeeper::needed_bytes(const Waiting& waiting,
                                        const std::vector<BenefactorId>& beside) const {
  std::uint64_t need = 0;
  for (const OutChunkPtr& chunk : waiting) {
    const auto& copies = chunk->chunk.copies;
    if (!beside.empty() && !std::ranges::equal(copies, beside, {}, &Extent::benefactor)) continue;
    need += (core_.places - copies.size()) * extent_bytes(chunk->chunk.length);
  }
  return need;
}

std::uint64_t SpaceKeeper::wanted_bytes(const Waiting& waiting, std::uint64_t batch_bytes,
                                        bool commits) const {
  const auto held = benefactors_of_first_chunk(waiting);
  const std::uint64_t need = needed_bytes(waiting, held);
  if (!held.empty()) return need;
  const std::uint64_t chunk = extent_bytes(core_.host.window().chunk_bytes());
  const std::uint64_t window = core_.host.window().slot_count() * chunk * core_.places;
  const std::uint64_t low = std::min(window, grants_.granted_bytes() / 2) / chunk;
  const bool is_low = grants_.room_for(chunk, avoid_, low) < low;
  // During a commit no bytes follow. Many files that are flushed, and stay open, must not take
  // space ahead.
  const bool only_needed = commits || core_.yields_slot;
  const std::uint64_t had = only_needed ? grants_.free_bytes() : grants_.granted_bytes();
  const bool asks_for_batch = batch_bytes > 0 && had == 0;
  if (need == 0 && !is_low && !asks_for_batch) return 0;
  if (no_space_ > 0) return need;
  if (only_needed) return need + (asks_for_batch ? batch_bytes : 0);
  if (shortage_) return std::max(need, std::min(window, limits::kGrantBytesDefault));
  // A session takes only a share of the pool ahead of need, because others write too.
  const std::uint64_t share = std::max(core_.host.arena_bytes_total() / 4, chunk);
  return std::max(
      need, std::min({std::max(kFirstWant, kGrowth * grants_.granted_bytes()), share, kWantMax}));
}

void SpaceKeeper::fill(msg::Place& place, const Waiting& waiting, std::uint64_t want) {
  place.want_bytes = want;
  place.unit_bytes = static_cast<std::uint32_t>(extent_bytes(
      waiting.empty() ? core_.host.window().chunk_bytes() : waiting.front()->chunk.length));
  place.avoid.assign(avoid_.begin(), avoid_.end());
  place.returned.swap(returned_);
  if (want == 0) return;
  place.beside = benefactors_of_first_chunk(waiting);
  want_in_flight_ = true;
  asks_for_places_ = short_of_places_ != Time{};
}

void SpaceKeeper::answered(std::uint64_t want) {
  if (want == 0) return;
  want_in_flight_ = false;
  fewer_places_ = fewer_places_ || asks_for_places_;
}

std::uint64_t SpaceKeeper::add(const std::vector<Grant>& grants, std::uint64_t want) {
  std::uint64_t granted = 0;
  for (const Grant& grant : grants) granted += grant.length;
  grants_.add(grants);
  if (granted > 0) used_at_ = core_.now();
  shortage_ = shortage_ || granted < want / 2;
  return granted;
}

bool SpaceKeeper::may_continue_with_fewer_copies(const Waiting& waiting) const {
  if (!fewer_places_ || waiting.empty()) return false;
  const Chunk& chunk = waiting.front()->chunk;
  return !chunk.copies.empty() || grants_.room_for(extent_bytes(chunk.length), avoid_, 1) > 0;
}

void SpaceKeeper::drop_unused() {
  const auto unused = grants_.drop_unused();
  returned_.insert(returned_.end(), unused.begin(), unused.end());
}

/// First the session asks for less, then it tries avoided benefactors again. Then it waits as long
/// as the manager advises, and finally it fails.
std::optional<Error> SpaceKeeper::no_space(const rpc::Failure& failure) {
  const Time now = core_.now();
  shortage_ = true;
  if (no_space_++ == 0) {
    no_space_since_ = now;
    return {};  // the next request is made now, only for needed bytes
  }
  // Return unused grants: they may be too small for this chunk, but suit other sessions.
  drop_unused();
  if (!avoid_.empty() && no_space_ == 2) {
    avoid_.clear();
    return {};
  }
  const bool advised = failure.retry_after > Duration::zero() || !avoid_.empty();
  const Duration patience = advised ? Duration(kNoSpacePatience) : Duration(kNoSpaceGrace);
  if (now - no_space_since_ > patience) return failure.error;
  const Duration wait = std::max(failure.retry_after, Duration(kNoSpaceWait));
  not_before_ = now + wait;
  core_.schedule_after(wait);
  return {};
}

bool SpaceKeeper::drop_idle() {
  if (grants_.free_bytes() == 0) return false;
  const Time now = core_.now();
  if (used_at_ == Time{}) used_at_ = now;
  if (now < idle_check_at_) return false;
  if (idle_check_at_ != Time{} && now - used_at_ >= kIdleGrants) {
    const std::size_t before = returned_.size();
    drop_unused();
    has_returned_grants_ = true;
    idle_check_at_ = {};
    return returned_.size() > before;
  }
  idle_check_at_ = now + kIdleGrants;
  core_.schedule_after(kIdleGrants);
  return false;
}

void SpaceKeeper::forget() {
  // Only extents with stored chunks stay this session's.
  grants_ = {};
  returned_.clear();
  shortage_ = false;
  fewer_places_ = false;
  short_of_places_ = {};
  no_space_ = 0;
  not_before_ = {};
}

void SpaceKeeper::resumed() {
  avoid_.clear();
  abandoned_.clear();
}

}  // namespace stdchk::client
