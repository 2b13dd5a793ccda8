#pragma once

#include <string_view>

#include "core/base/result.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// Refuses a new name in the folder `parent` that could not be drained. Succeeds for all names in a
/// pool without a drain directory.
///
/// Errors: kInvalidArgument: the pool itself uses that name in the drain directory.
///   kNameTooLong: the path in the drain directory has more than limits::kPathBytesMax bytes.
/// Not: a check of the files below a moved directory. Files whose paths become too long are not
///   drained, and count as failed.
Status check_drainable(const Pool& pool, FileId parent, std::string_view name);

}  // namespace stdchk::manager
