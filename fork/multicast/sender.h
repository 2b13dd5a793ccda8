#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fork/multicast/send_rate.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

struct SenderOptions {
  std::uint32_t units = 0;
  std::uint32_t cells = 1;   ///< of each unit
  double rate_start = 64e6;  ///< bytes a second
  double rate_least = 2e6;
  double rate_most = 12e9;
  /// False for a relay: it begins without units, and gets each by have().
  bool holds_all = true;
};

/// A Sender decides which cell to send next, and when, from what receivers ask for. Pure: it sends
/// nothing itself.
///
/// - Receivers that read the same image ask for the same units at about the same time (lockstep).
///   The Sender sends a unit once for all asks that come while it waits. Asks within the longest
///   measured delay after that are ignored (SnowFlock, section 4.4).
/// - The SendRate falls when a receiver reports loss and gets less than 88 % of the sent bytes,
/// once
///   in a delay. Less loss is chance, not a full queue.
/// - A receiver that lags, or that multicast does not reach, is served by unicast from a quarter of
///   the rate. Its losses do not lower the rate. After 1.5 s the Sender tries multicast again.
/// - When all receivers are served by unicast, they get the whole rate. The rate rises while cells wait,
///   and falls to 3/4 of the receivers' sum on loss.
/// - A relay's Sender keeps asks for units that have not come, and sends each when it comes. It
///   sends by unicast only.
///
/// Threads: one. Times never go back.
/// Limits: kReceiversMax receivers; asks of others are ignored. A receiver that is silent for
///   kSilence is forgotten.
class Sender {
 public:
  static constexpr std::size_t kReceiversMax = 256;
  static constexpr Duration kSilence = std::chrono::seconds(5);

  explicit Sender(const SenderOptions& options);

  /// Returns false when the ask is not valid or there is no room for the receiver. A valid ask
  /// names at most Ask::kWantedUnitsMax units. A receiver that says that it is gone is forgotten.
  bool on_ask(Time now, ReceiverId from, const Ask& ask);
  /// The unit has come. Only without `holds_all`.
  void have(std::uint32_t unit);
  /// Returns the next cell if the rate allows to send it at `now`. Nothing: wait until wake_at(),
  /// or for an ask.
  std::optional<CellAddress> next(Time now, std::size_t cell_bytes);
  Time wake_at() const { return wake_at_; }
  /// True when at least one receiver has come and none is left that lacks anything.
  bool all_done(Time now);
  /// The last unit sent to all. New receivers begin here.
  std::uint32_t position() const { return position_; }

  struct Counts {
    std::uint64_t asked_units = 0;
    std::uint64_t lockstep_units = 0;  ///< requests answered by units for all
    std::uint64_t multicast_cells = 0;
    std::uint64_t unicast_cells = 0;
    std::uint64_t loss_reports = 0;
    std::uint64_t backed_off = 0;
  };
  const Counts& counts() const { return counts_; }
  double rate() const { return rate_.rate(); }
  std::size_t receivers() const { return receivers_.size(); }
  bool is_unicast(ReceiverId id) const;
  /// False for a receiver that is unknown, or silent for kSilence.
  bool hears(Time now, ReceiverId id) const;

 private:
  struct Pending {
    std::uint32_t unit = 0;
    CellMask cells = 0;
  };
  struct Receiver {
    Time joined{};
    Time heard{};
    double rate = 0;  ///< bytes a second, smoothed
    Duration delay{};
    std::uint32_t position = 0;
    bool unicast = false;
    bool reached = true;  ///< by multicast
    bool done = false;
    Time slow_since{};
    Time unicast_since{};
    std::deque<std::uint32_t> queue;                    ///< units for unicast, in order
    std::unordered_map<std::uint32_t, CellMask> cells;  ///< of each unit of `queue`
    std::unordered_map<std::uint32_t, CellMask> later;  ///< of units that have not come
  };

  void forget_silent(Time now);
  void queue_for_all(Time now, std::uint32_t unit, CellMask cells);
  void queue_for_one(Receiver& receiver, std::uint32_t unit, CellMask cells);
  void judge(Time now, Receiver& receiver, const Ask& ask);
  void back_off(Time now);
  std::optional<CellAddress> take(Pending& pending, ReceiverId to);
  std::optional<CellAddress> take_unicast();
  bool is_here(std::uint32_t unit) const { return options_.holds_all || here_[unit]; }
  /// True when no incomplete receiver takes the multicast.
  bool is_unicast_only() const;
  double mean_rate() const;
  double unicast_rate() const;
  Duration lockstep_time() const;

  const SenderOptions options_;
  SendRate rate_;
  std::map<ReceiverId, Receiver> receivers_;
  std::deque<Pending> queue_;      ///< for all
  std::vector<CellMask> waiting_;  ///< of each unit: cells in queue_; with holds_all
  std::vector<Time> sent_;         ///< of each unit: time of the last multicast; with holds_all
  std::vector<bool> here_;         ///< the unit has come; without holds_all
  Time wake_at_{};
  std::uint32_t position_ = 0;
  bool had_receivers_ = false;
  bool unicast_only_ = false;   ///< is_unicast_only() at the last ask
  bool unicast_waits_ = false;  ///< the last look found a cell for unicast
  ReceiverId last_served_ = 0;
  Counts counts_;
};

}  // namespace stdchk::multicast
