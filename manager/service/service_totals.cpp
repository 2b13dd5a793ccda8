// The figures of a pool's report card.
#include <algorithm>

#include "core/policy/image_name.h"
#include "manager/pool/sets.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/parity_planner.h"
#include "manager/service/service.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kLookedMax = 1000;  ///< files examined for each new set

}  // namespace

bool Service::at_risk() {
  if (state_.undrained_single() > 0) return true;
  return state_.undrained_redundant() > 0 && (parity_->owes() || copies_->owes_undrained());
}

std::pair<std::uint64_t, std::uint64_t> Service::lent_and_free() const {
  std::pair<std::uint64_t, std::uint64_t> out;
  for (const auto& [id, status] : benefactors_) {
    if (status.info.state == msg::BenefactorState::kGone) continue;
    out.first += status.info.arena_bytes;
    out.second += space_.free_bytes(id);
  }
  return out;
}

void Service::look_at_totals() {
  const auto [lent, free] = lent_and_free();
  ledger_.note_fullness(lent - free, lent);
  ledger_.look(now(), at_risk());
}

/// With the first image of a set, checks whether the drain has kept up with the earlier sets.
void Service::note_set(const File& file) {
  const auto image = parse_image_name(file.name);
  if (!image || file.newest.stored_bytes == 0) return;
  if (!ledger_.begins_set(file.parent, image->application, image->timestep) || !has_drain()) return;
  std::size_t looked = 0;
  for (const auto& [sequence, id] : state_.undrained()) {
    if (++looked > kLookedMax) return;
    const File& other = *state_.file(id);
    if (other.parent != file.parent || sets_->skips(other)) continue;
    const auto earlier = parse_image_name(other.name);
    if (earlier && earlier->application == image->application &&
        earlier->timestep < image->timestep) {
      return ledger_.overtaken();
    }
  }
}

/// Notes that a session lacks space. A pool that still waits for its benefactors is not full.
void Service::note_shortage(SessionRecord& session) {
  const bool lends = std::ranges::any_of(benefactors_, [this](const auto& each) {
    return each.second.peer != nullptr && space_.usable(each.first);
  });
  if (session.short_since || !lends) return;
  session.short_since = now();
  look_at_totals();
}

void Service::end_shortage(SessionRecord& session) {
  if (session.short_since) ledger_.waited_for_space(now() - *session.short_since);
  session.short_since.reset();
}

std::uint64_t Service::granted_bytes() const {
  std::uint64_t out = 0;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [number, record] : session.grants) {
      record.for_each_unused([&](std::uint64_t, std::uint64_t bytes) { out += bytes; });
    }
  }
  return out;
}

std::size_t Service::grant_count() const {
  std::size_t out = 0;
  for (const auto& [id, session] : sessions_) out += session.grants.size();
  return out;
}

std::uint64_t Service::quarantined_bytes() const {
  std::uint64_t out = 0;
  for (const auto& [id, status] : benefactors_) {
    space_.for_each_quarantined(id, [&](Range range) { out += range.length; });
  }
  return out;
}

msg::PoolTotals Service::totals() const {
  msg::PoolTotals out = ledger_.totals();
  const History& history = state_.history();
  out.images = history.images;
  out.written_bytes = history.written_bytes;
  out.stored_bytes = history.stored_bytes;
  out.drained_images = history.drained_images;
  out.drained_bytes = history.drained_bytes;
  return out;
}

}  // namespace stdchk::manager
