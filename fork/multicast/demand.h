#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "fork/multicast/ask_pace.h"
#include "fork/multicast/units.h"

namespace stdchk::multicast {

/// A Demand decides what to ask for when a host wants single units of an image, now and then. Pure:
/// it keeps no bytes.
///
/// Hosts that want the same units at about the same time ask in lockstep, and the sender answers
/// them once (SnowFlock, section 4.4). Units that only others asked for come, too. The Demand takes
/// them: this host often wants them next.
///
/// The Demand repeats an ask when no cell of the unit has come within three delays. This time doubles
/// with each repeat.
///
/// Threads: one. Times never go back.
/// Limits: kOthersMax incomplete units that nobody here wants; they are dropped after 1 s.
class Demand {
 public:
  static constexpr std::size_t kOthersMax = 1024;

  struct Options {
    std::uint32_t units = 0;
    std::uint32_t cells = 1;
    bool by_unicast = false;  ///< multicast does not reach this host
  };

  explicit Demand(const Options& options);

  /// The unit is asked for until accept() or forget(). Equal calls count once.
  void want(std::uint32_t unit);
  void forget(std::uint32_t unit) { wanted_.erase(unit); }
  bool is_wanted(std::uint32_t unit) const { return wanted_.count(unit) > 0; }

  /// Returns false for a cell that is present, for a wrong number, and when the room is full.
  bool needs(std::uint32_t unit, std::uint32_t cell) const;
  /// Notes a cell. Returns true when the unit is whole with it, and must be verified: then call
  /// accept() or reject().
  bool on_cell(Time now, std::uint32_t unit, std::uint32_t cell, std::size_t bytes);
  /// The unit's bytes are right: nobody wants it any more.
  void accept(std::uint32_t unit);
  /// The unit's bytes were wrong. A wanted unit is asked for again.
  void reject(std::uint32_t unit);
  /// Drops incomplete units that others asked for long ago. Returns them: their bytes can go.
  std::vector<std::uint32_t> drop_old(Time now);

  /// The next ask. Nothing: wait until wake_at(), or for a cell.
  std::optional<Ask> next(Time now);
  Time wake_at() const { return wake_at_; }

 private:
  struct Wanted {
    CellMask here = 0;
    Time asked{};
    Time moved{};  ///< a cell came, or it was asked for
    std::uint32_t asks = 0;
  };
  struct Other {
    CellMask here = 0;
    Time moved{};
  };

  Duration patience(const Wanted& wanted) const;
  void add_wants(Time now, Ask& ask);

  const Options options_;
  std::map<std::uint32_t, Wanted> wanted_;
  std::map<std::uint32_t, Other> others_;
  AskPace pace_;
  Time wake_at_{};
};

}  // namespace stdchk::multicast
