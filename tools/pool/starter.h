#pragma once

#include "tools/base/pool_record.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// Starts the processes of a pool, or of one node's part of a job's pool. Lists each started
/// process in `record`, which it saves, so that `stop_pool` can end the processes after a failure.
/// The state directory of the record must exist.
Outcome<void> start_processes(const UpOptions& options, PoolRecord& record);

}  // namespace stdchk::tools
