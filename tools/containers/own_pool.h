#pragma once

#include <string>
#include <utility>

#include "tools/base/pool_record.h"
#include "tools/base/problem.h"

namespace stdchk::tools {

/// A JobEnd tells an OwnPool how its job has ended.
struct JobEnd {
  int status = 0;
  bool has_set = false;  ///< the pool has a complete set of the job
};

/// An OwnPool is the pool that `stdchk run --up` brings up for one job.
///
/// Errors: what `stdchk up` says.
/// Not: the destructor takes the pool down.
class OwnPool {
 public:
  /// Runs `stdchk up` with these options. Instead takes `earlier`, the state directory of a pool,
  /// if that pool is up: an earlier run of the job has left it.
  static Outcome<OwnPool> bring_up(const std::string& up, const std::string& earlier,
                                   const std::string& invoked_as);

  const PoolRecord& record() const { return record_; }
  /// A folder of the job's sets, where this pool has it. The default mount of a batch job has the
  /// job's number, so the folder of an earlier batch job lies elsewhere.
  std::string folder_here(const std::string& folder) const;
  /// Drains the pool and takes it down. A pool stays up if it has the only copy of a set that a
  /// restart needs, or if its drain fails. Says so on standard error.
  void take_down(const JobEnd& end) const;

 private:
  OwnPool(std::string program, PoolRecord record)
      : program_(std::move(program)), record_(std::move(record)) {}

  std::string program_;  ///< the path of `stdchk`
  PoolRecord record_;
};

}  // namespace stdchk::tools
