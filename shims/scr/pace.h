#pragma once

#include <cstdint>

#include "shims/settings.h"

namespace stdchk::shims {

// A Pace decides when a program should checkpoint, and when it should end. The rules are those of
// SCR's manual, "Configure a job". Times are seconds since 1970.
//
// Threads: one.
// Not: agreed among ranks. The first rank's answer counts for all.
class Pace {
 public:
  Pace(Settings& settings, double now);

  // Counts the question, too.
  bool needs_checkpoint(double now);
  void checkpoint_started(double now) { started_ = now; }
  void checkpoint_ended(double now);
  // Whether less than SCR_HALT_SECONDS are left of the job. The end is SCR_END_TIME, or
  // SLURM_JOB_END_TIME.
  bool time_is_up(double now) const;

 private:
  std::int64_t interval_, seconds_, halt_seconds_, end_time_;
  double overhead_percent_;
  std::int64_t questions_ = 0;
  double started_ = 0;
  double ended_;     // the last checkpoint, or the program's start
  double cost_ = 0;  // seconds of the last checkpoint
};

}  // namespace stdchk::shims
