#pragma once

#include <string>

#include "tools/base/problem.h"
#include "tools/pool/up_options.h"

namespace stdchk::tools {

/// Returns the absolute path of the drain directory, or the text of the object store with its
/// endpoint and region. The daemons run in other folders, and perhaps on other hosts. Returns "" for
/// none. A text that is no object store stays as it is: check_object_store() says why.
std::string drain_place(const DrainTarget& drain);

/// Looks whether the object store answers, accepts the credentials, and has the bucket.
Outcome<void> check_object_store(const DrainTarget& drain);

}  // namespace stdchk::tools
