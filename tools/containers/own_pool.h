#pragma once

#include <string>
#include <utility>

#include "tools/base/pool_record.h"
#include "tools/base/problem.h"
#include "tools/containers/pool_identity.h"

namespace stdchk::tools {

/// A JobEnd tells an OwnPool how its job has ended.
struct JobEnd {
  int status = 0;
  bool may_have_set = false;  ///< the pool may have a complete set of the job
};

/// An OwnPool is the pool that `stdchk run --up` brings up for one job.
///
/// Errors: what `stdchk up` says.
/// Not: the destructor takes the pool down.
class OwnPool {
 public:
  /// Runs `stdchk up` with these options. Instead takes the pool `earlier`, which an earlier run of
  /// the job has left, if that pool is still up. Refuses `earlier` if it is damaged.
  static Outcome<OwnPool> bring_up(const std::string& up, const PoolIdentity& earlier,
                                   const std::string& invoked_as);

  const PoolRecord& record() const { return record_; }
  /// Drains the pool and takes it down, and says so on standard error. The pool of an
  /// unfinished job stays up if memory may hold its only sets. After a signal (end_signals()) the
  /// drain has a limit of time, and the pool goes down even if its drain has not ended. False: the
  /// drain or the end has failed, or a signal has ended the drain.
  bool take_down(const JobEnd& end) const;

 private:
  OwnPool(std::string program, PoolRecord record)
      : program_(std::move(program)), record_(std::move(record)) {}

  bool drain_and_end(bool has_ended_well) const;
  bool end_now() const;

  std::string program_;  ///< the path of `stdchk`
  PoolRecord record_;
};

}  // namespace stdchk::tools
