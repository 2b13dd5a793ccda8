#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/clock.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// What goes wrong with whole processes, their clocks and what they store.
enum class Event : std::uint8_t {
  kKillClient,
  kKillBenefactor,
  kLeave,  ///< a benefactor wants to end
  kRestartManager,
  kLoseManagerDisk,
  kDamageJournal,  ///< its end is gone when the manager is started again
  kStopClient,
  kStopBenefactor,
  kStopManager,
  kCutClient,  ///< here and below: off from everybody, and nobody is told
  kCutBenefactor,
  kCutManager,
  kDropClient,  ///< here and below: all its links are lost
  kDropBenefactor,
  kDropManager,
  kFlip,  ///< a bit of a copy
  kJumpClock,
  kFillStorage,
  // Only in seeds that have a standby.
  kPartManager,  ///< off from some others and its standby
  kKillStandby,
  kStopStandby,
  kCutStandby,
  kStartOldManager,  ///< on its own disk, after another one has taken over
};
inline constexpr std::size_t kEvents = static_cast<std::size_t>(Event::kStartOldManager) + 1;

/// A Swarm is what one seed draws: which kinds of faults there are at all, how often each comes,
/// and the pool's limits. A fault that hides others is absent in some seeds (Groce et al., "Swarm
/// Testing", 2012).
///
/// Chances are drawn between a quarter and four times the usual one, evenly on a logarithmic scale.
/// Threads: one.
class Swarm {
 public:
  /// Without `faults` there are only the limits.
  Swarm(std::uint64_t seed, bool faults);

  /// Whether it is to happen in this step.
  bool happens(Event event) { return prng_.below(kMillion) < events_ppm_[index(event)]; }
  void happened(Event event) { ++happened_[index(event)]; }
  /// In words, each kind with its number.
  std::string describe() const;

  /// Only what clients say comes twice: the manager suppresses what it has seen, and benefactors do
  /// not.
  transport::fault::Plan plan(Role role) const;
  std::uint32_t storage_fail_ppm() const { return storage_fail_ppm_; }
  /// One in so many drain jobs and moves is slow.
  std::uint64_t slow_jobs() const { return slow_jobs_; }
  /// Up to six hours, forwards or backwards.
  Duration draw_jump();

  /// What the options of all simulated pools have in common.
  void limit(Cluster::Options& options);
  /// A number of bytes between these, evenly on a logarithmic scale, in steps of the first.
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
