#include "shims/scr/pace.h"

#include <cstdlib>

namespace stdchk::shims {

Pace::Pace(Settings& settings, double now)
    : interval_(settings.number("SCR_CHECKPOINT_INTERVAL", 0)),
      seconds_(settings.number("SCR_CHECKPOINT_SECONDS", 0)),
      halt_seconds_(settings.number("SCR_HALT_SECONDS", 0)),
      end_time_(settings.number("SCR_END_TIME", 0)),
      overhead_percent_(settings.fraction("SCR_CHECKPOINT_OVERHEAD", 0)),
      ended_(now) {
  const char* slurm = std::getenv("SLURM_JOB_END_TIME");
  if (end_time_ == 0 && slurm != nullptr) end_time_ = std::strtoll(slurm, nullptr, 10);
}

bool Pace::needs_checkpoint(double now) {
  ++questions_;
  if (time_is_up(now)) return true;
  if (interval_ == 0 && seconds_ == 0 && overhead_percent_ == 0) return true;
  if (interval_ > 0 && questions_ % interval_ == 0) return true;
  if (seconds_ > 0 && now - ended_ >= static_cast<double>(seconds_)) return true;
  if (overhead_percent_ <= 0) return false;
  // The first checkpoint measures the cost. Later checkpoints wait until cost / (time since the
  // last checkpoint + cost) is within the limit.
  return cost_ == 0 || cost_ * 100 <= overhead_percent_ * (now - ended_ + cost_);
}

void Pace::checkpoint_ended(double now) {
  cost_ = now - started_;
  ended_ = now;
}

bool Pace::time_is_up(double now) const {
  return halt_seconds_ > 0 && end_time_ > 0 &&
         static_cast<double>(end_time_) - now < static_cast<double>(halt_seconds_);
}

}  // namespace stdchk::shims
