#pragma once

#include <string>

#include "tools/base/pool_record.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// Starts a pool and returns when its mount works; after a failure no process of it remains.
Outcome<PoolRecord> start_pool(UpOptions options);
/// Makes a folder that only this user can access, so that others cannot read secrets or plant
/// files.
Outcome<void> make_private(const std::string& directory);
/// Tells people how to use the pool.
std::string describe_pool(const PoolRecord& pool, const UpOptions& options);

}  // namespace stdchk::tools
