#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fork/multicast/ask_pace.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

struct ReceiverOptions {
  std::uint32_t units = 0;
  std::uint32_t cells = 1;
  std::uint32_t begin = 0;      ///< first unit to ask for: the position of the other receivers
  std::uint32_t in_front = 0;   ///< number of units of the manifest, which come first
  bool by_unicast = false;      ///< multicast does not reach this host
  std::uint32_t window = 2048;  ///< limit of incomplete units that were asked for
};

/// A Receiver decides what to ask for, from the cells that arrive. Pure: it keeps no bytes.
///
/// It asks for the manifest first. Then it asks for the image in order, starts at `begin`, and
/// wraps around. Other receivers' asks bring units, too. The Receiver does not ask for these. A
/// cell counts as lost in two cases. Later units became complete while its unit got no cell for two
/// delays. Or no cell came for 300 ms.
///
/// Threads: one. Times never go back.
/// Limits: before the manifest is accepted, memory for the manifest's units only. At most `window`
///   incomplete units that were asked for, and kUnaskedMax that other receivers asked for.
class Receiver {
 public:
  static constexpr std::uint32_t kUnaskedMax = 2048;

  explicit Receiver(const ReceiverOptions& options);

  /// Notes a cell. Returns true when the unit is whole with it, and must be verified:
  /// then call accept() or reject().
  bool on_cell(Time now, std::uint32_t unit, std::uint32_t cell, std::size_t bytes);
  /// Returns false for a cell that does not exist or has come. Also returns false for a cell of a
  /// unit that was not asked for, when kUnaskedMax such units are incomplete.
  bool needs(std::uint32_t unit, std::uint32_t cell) const;
  /// The unit's bytes are right. With the manifest's last unit the image's units become known: the
  /// caller verifies the manifest's root before that call.
  void accept(std::uint32_t unit);
  /// The unit's bytes were wrong. It is asked for again.
  void reject(std::uint32_t unit);

  /// The next ask. Nothing: wait until wake_at(), or for a cell.
  std::optional<Ask> next(Time now);
  Time wake_at() const { return wake_at_; }
  bool done() const { return accepted_ == options_.units; }
  std::uint32_t accepted() const { return accepted_; }

  struct Counts {
    std::uint64_t twice_cells = 0;
    std::uint64_t skipped_cells = 0;  ///< no room: their unit was not asked for
    std::uint64_t lost_cells = 0;
    std::uint64_t rejected_units = 0;
    std::uint64_t asks = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Unit {
    CellMask here = 0;
    bool accepted = false;
    bool again = false;  ///< repeated asks do not measure the delay
    Time asked{};
    Time moved{};  ///< a cell came, or it was asked for
  };

  void add_want(Ask& ask, std::uint32_t unit, CellMask cells) const;
  void ask_again(Time now, Ask& ask);
  void ask_on(Time now, Ask& ask);
  /// The unit that is asked for at that step, and back.
  std::uint32_t index(std::uint32_t step) const;
  std::uint32_t step_of(std::uint32_t unit) const;
  std::uint32_t window() const;
  bool is_present(const Unit& unit) const;

  const ReceiverOptions options_;
  std::vector<Unit> units_;    ///< the manifest's; with the manifest, the image's too
  std::uint32_t low_ = 0;      ///< all steps below are accepted
  std::uint32_t next_ = 0;     ///< the next step to ask for
  std::uint32_t newest_ = 0;   ///< the highest step that was completed
  std::uint32_t flying_ = 0;   ///< asked for, not whole
  std::uint32_t unasked_ = 0;  ///< not asked for, here in part
  std::uint32_t accepted_ = 0;
  AskPace pace_;
  Time looked_{};
  Time moved_{};
  Time wake_at_{};
  bool reported_done_ = false;
  Counts counts_;
};

}  // namespace stdchk::multicast
