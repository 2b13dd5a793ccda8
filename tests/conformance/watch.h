#pragma once

#include "tests/conformance/remote.h"

namespace stdchk::conformance {

/// Makes the whole pages of `memory` read-only. The first processor fault makes them writable again
/// and records its cause.
/// Threads: the target's. Limits: one watch at a time in a process.
void watch(MutableByteSpan memory);
/// Ends the watch: the memory is writable again.
Writer end_watch();

}  // namespace stdchk::conformance
