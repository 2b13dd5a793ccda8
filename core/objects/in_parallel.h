#pragma once

#include <cstddef>
#include <functional>

#include "core/base/problem.h"

namespace stdchk {

/// Calls work(0) to work(count - 1), at most `threads` at once; with 1 on the calling thread.
/// Returns the first error, after which no call begins, and all calls have ended.
Outcome<void> in_parallel(std::size_t count, std::size_t threads,
                          const std::function<Outcome<void>(std::size_t)>& work);

}  // namespace stdchk
