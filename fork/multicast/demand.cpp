#include "fork/multicast/demand.h"

#include <algorithm>
#include <bit>

#include "core/base/assert.h"

namespace stdchk::multicast {
namespace {

/// A unit is asked for again after so many delays, within these bounds.
constexpr int kLateDelays = 3;
constexpr auto kLateLeast = std::chrono::milliseconds(20);
constexpr std::uint32_t kDoublingsMax = 4;
constexpr auto kOtherTime = std::chrono::seconds(1);

}  // namespace

Demand::Demand(const Options& options) : options_(options) {
  STDCHK_ASSERT(options.units > 0 && options.units <= kUnitsMax);
  STDCHK_ASSERT(options.cells > 0 && options.cells <= kCellsMax);
}

void Demand::want(std::uint32_t unit) {
  STDCHK_ASSERT(unit < options_.units);
  const auto [place, is_new] = wanted_.try_emplace(unit);
  const auto other = others_.find(unit);
  if (!is_new || other == others_.end()) return;
  place->second.here = other->second.here;
  others_.erase(other);
}

bool Demand::needs(std::uint32_t unit, std::uint32_t cell) const {
  if (unit >= options_.units || cell >= options_.cells) return false;
  if (const auto found = wanted_.find(unit); found != wanted_.end()) {
    return (found->second.here >> cell & 1U) == 0;
  }
  const auto other = others_.find(unit);
  if (other == others_.end()) return others_.size() < kOthersMax;
  return (other->second.here >> cell & 1U) == 0;
}

bool Demand::on_cell(Time now, std::uint32_t unit, std::uint32_t cell, std::size_t bytes) {
  pace_.note_bytes(bytes);
  if (!needs(unit, cell)) return false;
  const auto bit = static_cast<CellMask>(1U << cell);
  const auto found = wanted_.find(unit);
  if (found == wanted_.end()) {
    Other& other = others_[unit];
    other.here = static_cast<CellMask>(other.here | bit);
    other.moved = now;
    return other.here == all_cells(options_.cells);
  }
  Wanted& wanted = found->second;
  if (wanted.here == 0 && wanted.asks == 1) pace_.note_delay(now - wanted.asked);
  wanted.here = static_cast<CellMask>(wanted.here | bit);
  wanted.moved = now;
  return wanted.here == all_cells(options_.cells);
}

void Demand::accept(std::uint32_t unit) {
  wanted_.erase(unit);
  others_.erase(unit);
}

void Demand::reject(std::uint32_t unit) {
  others_.erase(unit);
  const auto found = wanted_.find(unit);
  if (found != wanted_.end()) found->second.here = 0;
}

std::vector<std::uint32_t> Demand::drop_old(Time now) {
  std::vector<std::uint32_t> dropped;
  std::erase_if(others_, [&](const auto& each) {
    if (now - each.second.moved <= kOtherTime) return false;
    dropped.push_back(each.first);
    return true;
  });
  return dropped;
}

Duration Demand::patience(const Wanted& wanted) const {
  const Duration once = pace_.patience(kLateDelays, kLateLeast);
  const std::uint32_t doublings = std::min(std::max(wanted.asks, 1U) - 1, kDoublingsMax);
  return std::min<Duration>(once * (std::int64_t{1} << doublings), AskPace::kLateMost);
}

/// Adds units that were not asked for yet, and units that are late.
void Demand::add_wants(Time now, Ask& ask) {
  for (auto& [unit, wanted] : wanted_) {
    if (ask.wants.size() >= Ask::kWantsMax) return;
    if (wanted.asks > 0 && now - wanted.moved <= patience(wanted)) continue;
    const auto absent = static_cast<CellMask>(all_cells(options_.cells) & ~wanted.here);
    if (wanted.asks == 0) {
      wanted.asked = now;
    } else {
      pace_.note_lost(static_cast<std::uint32_t>(std::popcount(absent)));
    }
    ++wanted.asks;
    wanted.moved = now;
    Want* const last = ask.wants.empty() ? nullptr : &ask.wants.back();
    if (last != nullptr && last->cells == absent && last->first + last->count == unit &&
        last->count < Ask::kWantedUnitsMax / Ask::kWantsMax) {
      ++last->count;
    } else {
      ask.wants.push_back({unit, 1, absent});
    }
  }
}

std::optional<Ask> Demand::next(Time now) {
  pace_.measure(now);
  Ask ask;
  add_wants(now, ask);
  wake_at_ = now + (wanted_.empty() ? AskPace::kAlive : AskPace::kLook);
  if (ask.wants.empty() && !pace_.is_silent(now)) return std::nullopt;
  pace_.report(now, ask);
  ask.by_unicast = options_.by_unicast;
  return ask;
}

}  // namespace stdchk::multicast
