#include "fork/multicast/receiver.h"

#include <algorithm>
#include <bit>

#include "core/base/assert.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

/// A unit is late behind its neighbours after this many delays, within these bounds.
constexpr int kLateDelays = 2;
constexpr auto kLateLeast = milliseconds(10);
/// Nothing came at all.
constexpr auto kSilence = milliseconds(300);
/// Asks are sent in batches of at least so many units, but at the end.
constexpr std::uint32_t kBatch = 32;
constexpr double kWindowSeconds = 0.03;
constexpr std::uint32_t kWindowLeast = 96;

}  // namespace

Receiver::Receiver(const ReceiverOptions& options)
    : options_(options), units_(options.in_front > 0 ? options.in_front : options.units) {
  STDCHK_ASSERT(options.units > 0 && options.units <= kUnitsMax && options.begin < options.units);
  STDCHK_ASSERT(options.in_front < options.units);
  STDCHK_ASSERT(options.cells > 0 && options.cells <= kCellsMax);
  STDCHK_ASSERT(options.window <= Ask::kWantedUnitsMax);
}

std::uint32_t Receiver::index(std::uint32_t step) const {
  const std::uint32_t front = options_.in_front;
  if (step < front) return step;
  const std::uint32_t turn = std::max(options_.begin, front) - front;
  return front + (step - front + turn) % (options_.units - front);
}

std::uint32_t Receiver::step_of(std::uint32_t unit) const {
  const std::uint32_t front = options_.in_front;
  if (unit < front) return unit;
  const std::uint32_t others = options_.units - front;
  const std::uint32_t turn = std::max(options_.begin, front) - front;
  return front + (unit - front + others - turn) % others;
}

bool Receiver::needs(std::uint32_t unit, std::uint32_t cell) const {
  if (unit >= units_.size() || cell >= options_.cells) return false;
  const Unit& found = units_[unit];
  if (found.accepted || (found.here >> cell & 1U) != 0) return false;
  return found.here != 0 || found.asked != Time{} || unasked_ < kUnaskedMax;
}

bool Receiver::is_present(const Unit& unit) const {
  return unit.accepted || unit.here == all_cells(options_.cells);
}

bool Receiver::on_cell(Time now, std::uint32_t unit, std::uint32_t cell, std::size_t bytes) {
  if (unit >= units_.size() || cell >= options_.cells) return false;
  pace_.note_bytes(bytes);
  moved_ = now;
  Unit& found = units_[unit];
  if (!needs(unit, cell)) {
    ++(is_present(found) || found.here != 0 ? counts_.twice_cells : counts_.skipped_cells);
    return false;
  }
  if (found.here == 0 && found.asked == Time{}) ++unasked_;
  if (found.here == 0 && found.asked != Time{} && !found.again) {
    pace_.note_delay(now - found.asked);
  }
  found.here = static_cast<CellMask>(found.here | (1U << cell));
  found.moved = now;
  if (!is_present(found)) return false;
  if (found.asked == Time{}) {
    --unasked_;
  } else if (flying_ > 0) {
    --flying_;
  }
  newest_ = std::max(newest_, step_of(unit));
  return true;
}

void Receiver::accept(std::uint32_t unit) {
  STDCHK_ASSERT(units_[unit].here == all_cells(options_.cells) && !units_[unit].accepted);
  units_[unit].accepted = true;
  ++accepted_;
  if (accepted_ == options_.in_front) units_.resize(options_.units);
  while (low_ < units_.size() && units_[index(low_)].accepted) ++low_;
}

void Receiver::reject(std::uint32_t unit) {
  ++counts_.rejected_units;
  Unit& found = units_[unit];
  found.here = 0;
  if (found.asked != Time{}) ++flying_;
  found.moved = Time{};  // at once
}

/// Returns the number of units that arrive in 30 ms. More asks would wait at the sender and hide
/// losses.
std::uint32_t Receiver::window() const {
  const double units = pace_.rate() * kWindowSeconds / static_cast<double>(kUnitBytes);
  return std::clamp(static_cast<std::uint32_t>(std::min(units, 1e6)),
                    std::min(kWindowLeast, options_.window), options_.window);
}

void Receiver::add_want(Ask& ask, std::uint32_t unit, CellMask cells) const {
  if (!ask.wants.empty()) {
    Want& last = ask.wants.back();
    if (last.cells == cells && last.first + last.count == unit && last.count < UINT16_MAX) {
      ++last.count;
      return;
    }
  }
  ask.wants.push_back({unit, 1, cells});
}

/// Adds units whose cells are late.
void Receiver::ask_again(Time now, Ask& ask) {
  const bool silent = now - moved_ > kSilence;
  const Duration patience = pace_.patience(kLateDelays, kLateLeast);
  for (std::uint32_t step = low_; step < next_; ++step) {
    if (ask.wants.size() >= Ask::kWantsMax) return;
    Unit& unit = units_[index(step)];
    if (is_present(unit)) continue;
    // At the end no later unit can tell.
    const bool passed = (step < newest_ || next_ == units_.size()) && now - unit.moved > patience;
    const bool late = silent && now - unit.moved > kSilence;
    if (!passed && !late) continue;
    const auto absent = static_cast<CellMask>(all_cells(options_.cells) & ~unit.here);
    const auto lost = static_cast<std::uint32_t>(std::popcount(absent));
    // A rejected unit was not lost on the way.
    if (unit.moved != Time{}) {
      pace_.note_lost(lost);
      counts_.lost_cells += lost;
    }
    unit.moved = now;
    unit.again = true;
    add_want(ask, index(step), absent);
  }
}

/// Adds units that were not requested yet, as far as the window allows.
void Receiver::ask_on(Time now, Ask& ask) {
  const bool ends = units_.size() - next_ <= kBatch;
  const std::uint32_t most = window();
  if (flying_ + kBatch > most && !ends) return;
  while (next_ < units_.size() && flying_ < most && ask.wants.size() < Ask::kWantsMax) {
    Unit& unit = units_[index(next_++)];
    if (is_present(unit)) continue;
    if (unit.here != 0) --unasked_;
    unit.asked = unit.moved = now;
    ++flying_;
    add_want(ask, index(next_ - 1), static_cast<CellMask>(all_cells(options_.cells) & ~unit.here));
  }
}

std::optional<Ask> Receiver::next(Time now) {
  if (moved_ == Time{}) moved_ = now;
  pace_.measure(now);
  Ask ask;
  if (done()) {
    wake_at_ = now + AskPace::kAlive;
    if (reported_done_ && !pace_.is_silent(now)) return std::nullopt;
    reported_done_ = ask.done = true;
  } else {
    if (now - looked_ >= AskPace::kLook) {
      looked_ = now;
      ask_again(now, ask);
    }
    ask_on(now, ask);
    wake_at_ = now + AskPace::kLook;
    if (ask.wants.empty() && !pace_.is_silent(now)) return std::nullopt;
  }
  pace_.report(now, ask);
  ask.by_unicast = options_.by_unicast;
  ++counts_.asks;
  return ask;
}

}  // namespace stdchk::multicast
