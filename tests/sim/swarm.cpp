#include "tests/sim/swarm.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace stdchk::sim {

namespace {

using namespace std::chrono_literals;

/// In the order of Event.
struct Kind {
  const char* name;
  double usual_ppm;  ///< usual chance per million steps
};
constexpr std::array<Kind, kEvents> kKinds{{
    {"killed clients", 16000},
    {"killed benefactors", 4000},
    {"leaving benefactors", 3000},
    {"restarted managers", 5000},
    {"lost manager disks", 5000},
    {"damaged journals", 4000},
    {"stopped clients", 25000},
    {"stopped benefactors", 6000},
    {"stopped managers", 4000},
    {"cut clients", 14000},
    {"cut benefactors", 12000},
    {"cut managers", 4000},
    {"dropped clients", 14000},
    {"dropped benefactors", 12000},
    {"dropped managers", 5000},
    {"flipped bits", 25000},
    {"clock jumps", 30000},
    {"full drain directories", 8000},
    // Only in seeds with a standby.
    {"parted managers", 10000},
    {"killed standbys", 3000},
    {"stopped standbys", 4000},
    {"cut standbys", 4000},
    {"old managers started again", 120000},
}};
constexpr double kSpread = 4;
constexpr Duration kJumpMax = 6h;
constexpr std::uint32_t kDriftPpmMax = 200;

}  // namespace

Swarm::Swarm(std::uint64_t seed, bool faults) : faults_(faults), prng_(seed ^ 0x5A12A) {
  for (std::size_t i = 0; i < kEvents; ++i) events_ppm_[i] = draw_ppm(kKinds[i].usual_ppm);
  plan_.delay_ppm = draw_ppm(150000);
  plan_.delay_max = Duration(static_cast<std::int64_t>(draw_between(1e6, 1e8)));
  plan_.fail_ppm = draw_ppm(10000);
  plan_.tear_ppm = draw_ppm(10000);
  plan_.late_ppm = draw_ppm(5000);
  plan_.late_max = 3s;
  plan_.drop_ppm = draw_ppm(700);
  plan_.drop_after_ppm = draw_ppm(700);
  plan_.lose_ppm = draw_ppm(200);
  plan_.repeat_ppm = draw_ppm(3000);
  storage_fail_ppm_ = draw_ppm(30000);
  slow_jobs_ = faults_ ? static_cast<std::uint64_t>(draw_between(10, 160)) : 40;
}

double Swarm::draw_between(double least, double most) {
  const double at = static_cast<double>(prng_.below(kMillion)) / static_cast<double>(kMillion);
  return least * std::pow(most / least, at);
}

/// The drawn chance in parts per million; zero, for one of four seeds, switches the fault off.
std::uint32_t Swarm::draw_ppm(double usual) {
  const double ppm = draw_between(usual / kSpread, usual * kSpread);
  const bool on = prng_.chance(3, 4);
  return faults_ && on ? static_cast<std::uint32_t>(ppm) : 0;
}

std::uint64_t Swarm::draw_bytes(std::uint64_t least, std::uint64_t most) {
  const double bytes = draw_between(static_cast<double>(least), static_cast<double>(most));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(bytes) / least, 1) * least;
}

transport::fault::Plan Swarm::plan(Role role) const {
  transport::fault::Plan plan = plan_;
  if (role != Role::kClient) plan.repeat_ppm = 0;
  return plan;
}

Duration Swarm::draw_jump() {
  const Duration by(static_cast<std::int64_t>(
      draw_between(1e9, static_cast<double>(Duration(kJumpMax).count()))));
  return prng_.chance(1, 2) ? by : -by;
}

void Swarm::limit(Cluster::Options& options) {
  options.pool.stripe_width = static_cast<std::uint32_t>(1 + prng_.below(4));
  options.sync_delay = Duration(1ms) * prng_.below(21);
  options.snapshot_every = static_cast<std::size_t>(draw_between(20, 10000));
  options.log_bytes = draw_bytes(64 * limits::kKiB, limits::kMiB);
  options.drift_ppm_max = kDriftPpmMax;
  options.clock_offset_max = 1000s;
  if (prng_.chance(1, 3)) options.managers = Cluster::manager_addresses();
}

std::string Swarm::describe() const {
  std::string text;
  for (std::size_t i = 0; i < kEvents; ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", kKinds[i].name, happened_[i]);
  }
  return text;
}

}  // namespace stdchk::sim
