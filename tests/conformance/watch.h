#pragma once

#include "tests/conformance/remote.h"

namespace stdchk::conformance {

/// Makes whole pages of `memory` read-only. The first processor fault makes them writable again and
/// notes who caused it. One watch at a time in a process; called on the target's thread.
void watch(MutableByteSpan memory);
/// Ends the watch: the memory is writable again.
Writer end_watch();

}  // namespace stdchk::conformance
