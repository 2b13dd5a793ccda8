#include "fork/multicast/sender.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

/// An idle sender checks its queues again after this time.
constexpr auto kIdle = milliseconds(10);
constexpr auto kBackOffInterval = milliseconds(50);
/// A receiver that gets at least this share of what is sent loses cells by chance.
constexpr double kDelivered = 0.88;
constexpr auto kLockstepLeast = milliseconds(4);
constexpr auto kLockstepMost = milliseconds(200);
/// A receiver lags that receives less than this share of what is sent, for kLagTime.
constexpr double kLagShare = 0.6;
constexpr auto kLagTime = milliseconds(400);
/// Duration of unicast service for a receiver that lags.
constexpr auto kUnicastTime = milliseconds(1500);
constexpr std::size_t kUnicastQueueMax = 4096;

}  // namespace

Sender::Sender(const SenderOptions& options)
    : options_(options),
      rate_({options.rate_start, options.rate_least, options.rate_most}),
      waiting_(options.holds_all ? options.units : 0),
      sent_(options.holds_all ? options.units : 0),
      here_(options.holds_all ? 0 : options.units) {
  STDCHK_ASSERT(options.units > 0 && options.units <= kUnitsMax);
  STDCHK_ASSERT(options.cells > 0 && options.cells <= kCellsMax);
}

bool Sender::is_unicast(ReceiverId id) const {
  const auto found = receivers_.find(id);
  return found != receivers_.end() && found->second.unicast;
}

bool Sender::hears(Time now, ReceiverId id) const {
  const auto found = receivers_.find(id);
  return found != receivers_.end() && now - found->second.heard <= kSilence;
}

bool Sender::on_ask(Time now, ReceiverId from, const Ask& ask) {
  if (from == 0 || ask.wants.size() > Ask::kWantsMax) return false;
  std::uint32_t units = 0;
  for (const Want& want : ask.wants) {
    if (want.first >= options_.units || want.count > options_.units - want.first ||
        (want.cells & ~all_cells(options_.cells)) != 0) {
      return false;
    }
    units += want.count;
  }
  if (units > Ask::kWantedUnitsMax) return false;
  if (ask.gone) {
    receivers_.erase(from);
    unicast_only_ = is_unicast_only();
    return true;
  }
  if (receivers_.count(from) == 0 && receivers_.size() >= kReceiversMax) {
    forget_silent(now);
    if (receivers_.size() >= kReceiversMax) return false;
  }
  const auto [place, is_new] = receivers_.try_emplace(from);
  Receiver& receiver = place->second;
  if (is_new) receiver.joined = now;
  had_receivers_ = true;
  receiver.heard = now;
  receiver.done = ask.done;
  judge(now, receiver, ask);
  unicast_only_ = is_unicast_only();
  for (const Want& want : ask.wants) {
    for (std::uint32_t unit = want.first; unit < want.first + want.count; ++unit) {
      ++counts_.asked_units;
      if (receiver.unicast) {
        queue_for_one(receiver, unit, want.cells);
      } else {
        queue_for_all(now, unit, want.cells);
      }
    }
  }
  if (!queue_.empty() || receiver.unicast) wake_at_ = now;
  return true;
}

/// Evaluates a receiver's report: its rate, its delay, its losses, and whether it keeps up.
void Sender::judge(Time now, Receiver& receiver, const Ask& ask) {
  const double rate = ask.rate_kib * 1024.0;
  receiver.rate = receiver.rate == 0 ? rate : 0.7 * receiver.rate + 0.3 * rate;
  if (ask.delay_us > 0) {
    receiver.delay = std::min<Duration>(std::chrono::microseconds(ask.delay_us), kLockstepMost);
  }
  receiver.reached = options_.holds_all && !ask.by_unicast;
  // All receivers get the same stream. So a receiver that gets much less than was sent loses
  // datagrams.
  const bool busy = rate_.is_used();
  const bool slow = busy && !unicast_only_ && receiver.rate < kLagShare * rate_.sent() &&
                    now - receiver.joined > kLagTime && receivers_.size() > 1;
  if (!slow) receiver.slow_since = Time{};
  if (slow && receiver.slow_since == Time{}) receiver.slow_since = now;
  if (!receiver.reached || (slow && now - receiver.slow_since > kLagTime)) {
    if (!receiver.unicast) receiver.unicast_since = now;
    receiver.unicast = true;
  } else if (receiver.unicast && now - receiver.unicast_since > kUnicastTime) {
    receiver.unicast = false;
    receiver.slow_since = Time{};
  }
  if (ask.lost_cells == 0) return;
  ++counts_.loss_reports;
  // While the sender waits for asks, its rate does not show losses.
  if (!busy) return;
  const double least = kDelivered * rate_.sent();
  if (unicast_only_) {
    if (unicast_rate() <= least) back_off(now);
  } else if (!receiver.unicast && receiver.slow_since == Time{} && receiver.rate <= least) {
    back_off(now);
  }
}

bool Sender::is_unicast_only() const {
  bool any = false;
  for (const auto& [id, receiver] : receivers_) {
    if (receiver.done) continue;
    if (!receiver.unicast) return false;
    any = true;
  }
  return any;
}

void Sender::back_off(Time now) {
  const Duration interval = std::max<Duration>(lockstep_time(), kBackOffInterval);
  const double received = unicast_only_ ? unicast_rate() : mean_rate();
  if (rate_.back_off(now, received, interval)) ++counts_.backed_off;
}

/// The mean rate of those that are served by multicast and receive anything.
double Sender::mean_rate() const {
  double sum = 0;
  int count = 0;
  for (const auto& [id, receiver] : receivers_) {
    if (receiver.unicast || receiver.done || receiver.rate == 0) continue;
    sum += receiver.rate;
    ++count;
  }
  return count == 0 ? 0 : sum / count;
}

/// The sum of the rates of all receivers that are served by unicast.
double Sender::unicast_rate() const {
  double sum = 0;
  for (const auto& [id, receiver] : receivers_) {
    if (receiver.unicast && !receiver.done) sum += receiver.rate;
  }
  return sum;
}

Duration Sender::lockstep_time() const {
  Duration longest = kLockstepLeast;
  for (const auto& [id, receiver] : receivers_) {
    if (!receiver.unicast) longest = std::max(longest, receiver.delay);
  }
  return longest;
}

void Sender::queue_for_all(Time now, std::uint32_t unit, CellMask cells) {
  const CellMask absent = static_cast<CellMask>(cells & ~waiting_[unit]);
  if (absent == 0 || (sent_[unit] != Time{} && now - sent_[unit] < lockstep_time())) {
    ++counts_.lockstep_units;
    return;
  }
  if (waiting_[unit] == 0) queue_.push_back({unit, 0});
  waiting_[unit] = static_cast<CellMask>(waiting_[unit] | cells);
}

void Sender::queue_for_one(Receiver& receiver, std::uint32_t unit, CellMask cells) {
  if (!is_here(unit)) {
    if (receiver.later.size() >= kUnicastQueueMax && receiver.later.count(unit) == 0) return;
    CellMask& later = receiver.later[unit];
    later = static_cast<CellMask>(later | cells);
    return;
  }
  const auto queued = receiver.cells.find(unit);
  if (queued != receiver.cells.end()) {
    queued->second = static_cast<CellMask>(queued->second | cells);
  } else if (receiver.queue.size() < kUnicastQueueMax) {
    receiver.queue.push_back(unit);
    receiver.cells.emplace(unit, cells);
  }
}

void Sender::have(std::uint32_t unit) {
  STDCHK_ASSERT(!options_.holds_all && unit < options_.units);
  here_[unit] = true;
  for (auto& [id, receiver] : receivers_) {
    const auto asked = receiver.later.find(unit);
    if (asked == receiver.later.end()) continue;
    const CellMask cells = asked->second;
    receiver.later.erase(asked);
    queue_for_one(receiver, unit, cells);
    wake_at_ = Time{};
  }
}

std::optional<CellAddress> Sender::take(Pending& pending, ReceiverId to) {
  if (pending.cells == 0) return std::nullopt;
  std::uint32_t cell = 0;
  while ((pending.cells >> cell & 1U) == 0) ++cell;
  pending.cells = static_cast<CellMask>(pending.cells & ~(1U << cell));
  return CellAddress{pending.unit, cell, to};
}

/// Returns a cell for the next unicast receiver, in turn.
std::optional<CellAddress> Sender::take_unicast() {
  auto each = receivers_.upper_bound(last_served_);
  for (std::size_t i = 0; i < receivers_.size(); ++i, ++each) {
    if (each == receivers_.end()) each = receivers_.begin();
    Receiver& receiver = each->second;
    if (receiver.queue.empty()) continue;
    const std::uint32_t unit = receiver.queue.front();
    const auto queued = receiver.cells.find(unit);
    Pending pending{unit, queued->second};
    const auto cell = take(pending, each->first);
    queued->second = pending.cells;
    if (pending.cells == 0) {
      receiver.cells.erase(queued);
      receiver.queue.pop_front();
    }
    if (!cell) continue;
    last_served_ = each->first;
    ++counts_.unicast_cells;
    return cell;
  }
  return std::nullopt;
}

std::optional<CellAddress> Sender::next(Time now, std::size_t cell_bytes) {
  rate_.advance(now, !queue_.empty() || (unicast_only_ && unicast_waits_));
  const auto bytes = static_cast<double>(cell_bytes);
  if (!rate_.allows(bytes)) {
    wake_at_ = rate_.time_of(now, bytes);
    return std::nullopt;
  }
  if (rate_.allows_unicast(bytes) || queue_.empty()) {
    const auto cell = take_unicast();
    unicast_waits_ = cell.has_value();
    if (cell) {
      // Alone, unicast counts as what is sent to all: the rate depends on it.
      if (unicast_only_) {
        rate_.spend_on_all(bytes);
      } else {
        rate_.spend_on_one(bytes);
      }
      return cell;
    }
  }
  while (!queue_.empty()) {
    Pending& front = queue_.front();
    front.cells = waiting_[front.unit];
    const auto cell = take(front, 0);
    waiting_[front.unit] = front.cells;
    const std::uint32_t unit = front.unit;
    if (front.cells == 0) {
      sent_[unit] = now;
      position_ = unit;
      queue_.pop_front();
    }
    if (!cell) continue;
    rate_.spend_on_all(bytes);
    ++counts_.multicast_cells;
    return cell;
  }
  wake_at_ = now + kIdle;
  return std::nullopt;
}

void Sender::forget_silent(Time now) {
  std::erase_if(receivers_, [&](const auto& each) { return now - each.second.heard > kSilence; });
}

bool Sender::all_done(Time now) {
  forget_silent(now);
  return had_receivers_ && std::all_of(receivers_.begin(), receivers_.end(),
                                       [](const auto& each) { return each.second.done; });
}

}  // namespace stdchk::multicast
