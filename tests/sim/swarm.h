#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// Faults of whole processes, their clocks and their storage.
enum class Event : std::uint8_t {
  kKillClient,
  kKillBenefactor,
  kLeave,  ///< a benefactor asks to end
  kRestartManager,
  kLoseManagerDisk,
  kDamageJournal,  ///< the journal's end is gone at the manager's restart
  kStopClient,
  kStopBenefactor,
  kStopManager,
  kCutClient,  ///< kCut*: cut off from all other processes, without notice
  kCutBenefactor,
  kCutManager,
  kDropClient,  ///< kDrop*: all links of the process break
  kDropBenefactor,
  kDropManager,
  kFlip,  ///< flips a bit of a copy
  kJumpClock,
  kFillStorage,
  // Only in seeds with a standby.
  kPartManager,  ///< cuts off the standby and a subset of other processes
  kKillStandby,
  kStopStandby,
  kCutStandby,
  kStartOldManager,  ///< restarts the superseded manager on its own disk
};
inline constexpr std::size_t kEvents = static_cast<std::size_t>(Event::kStartOldManager) + 1;

/// A Swarm holds what one seed draws: the kinds of faults that occur, their frequency, and the
/// pool's limits. Each kind is absent in some seeds, because it could hide others (Groce et al.,
/// "Swarm Testing", 2012).
///
/// Chances are drawn between a quarter and four times the usual chance, evenly on a logarithmic
/// scale.
/// Threads: one.
class Swarm {
 public:
  /// Without `faults`, draws only the limits.
  Swarm(std::uint64_t seed, bool faults);

  /// Draws whether the event happens in this step.
  bool happens(Event event) { return prng_.below(kMillion) < events_ppm_[index(event)]; }
  void happened(Event event) { ++happened_[index(event)]; }
  /// Lists each kind of fault with its count.
  std::string describe() const;

  /// The network faults for a process. Only clients' messages are repeated: the manager suppresses
  /// duplicates, benefactors do not.
  transport::fault::Plan plan(Role role) const;
  std::uint32_t storage_fail_ppm() const { return storage_fail_ppm_; }
  /// A drain job or move is slow once in this number.
  std::uint64_t slow_jobs() const { return slow_jobs_; }
  /// Draws a jump of up to six hours, forwards or backwards.
  Duration draw_jump();

  /// Sets the options that all simulated pools share.
  void limit(Cluster::Options& options);
  /// Draws a multiple of `least` up to `most`, evenly on a logarithmic scale.
  std::uint64_t draw_bytes(std::uint64_t least, std::uint64_t most);

 private:
  static constexpr std::uint64_t kMillion = 1000000;
  static std::size_t index(Event event) { return static_cast<std::size_t>(event); }
  double draw_between(double least, double most);
  std::uint32_t draw_ppm(double usual);

  const bool faults_;
  Prng prng_;
  std::array<std::uint32_t, kEvents> events_ppm_{};
  std::array<std::uint64_t, kEvents> happened_{};
  transport::fault::Plan plan_;
  std::uint32_t storage_fail_ppm_ = 0;
  std::uint64_t slow_jobs_ = 40;
};

}  // namespace stdchk::sim
