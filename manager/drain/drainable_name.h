#pragma once

#include <cstddef>
#include <string_view>

#include "core/base/result.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// Refuses a new name in the folder `parent` that could not be drained.
///
/// Errors:
///   kInvalidArgument: the name begins with ".stdchk-", as the pool's own names do. A pool without a
///     drain directory refuses such names, too. Or the pool drains to an object store, and the name is
///     not UTF-8.
///   kNameTooLong: the path in the drain directory has more than limits::kPathBytesMax bytes.
/// Not: a check of the names below a moved directory (check_drainable_below()).
Status check_drainable(const Pool& pool, FileId parent, std::string_view name);

/// Refuses a new name of the directory `moved` that makes a path below too long for the drain
/// directory: kNameTooLong. Accepts each new path that is not longer than the old path.
Status check_drainable_below(const Pool& pool, const File& moved, FileId parent,
                             std::string_view name);

/// Returns how many bytes a new name in the folder may have.
std::size_t drainable_name_bytes(const Pool& pool, FileId parent);

}  // namespace stdchk::manager
