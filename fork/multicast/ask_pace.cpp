#include "fork/multicast/ask_pace.h"

#include <utility>

namespace stdchk::multicast {
namespace {

constexpr auto kMeasure = std::chrono::milliseconds(20);

}  // namespace

void AskPace::measure(Time now) {
  if (measured_ == Time{}) measured_ = now;
  if (now - measured_ < kMeasure) return;
  const double rate = bytes_ / std::chrono::duration<double>(now - measured_).count();
  rate_ = rate_ == 0 ? rate : 0.7 * rate_ + 0.3 * rate;
  bytes_ = 0;
  measured_ = now;
}

void AskPace::report(Time now, Ask& ask) {
  asked_ = now;
  ask.rate_kib = static_cast<std::uint32_t>(std::min(rate_ / 1024.0, 4e9));
  ask.delay_us = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(delay_).count());
  ask.lost_cells = std::exchange(lost_, 0);
}

}  // namespace stdchk::multicast
