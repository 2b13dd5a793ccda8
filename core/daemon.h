#pragma once

#include <atomic>
#include <string>

#include "core/reactor.h"

namespace stdchk {

/// From now on SIGTERM and SIGINT stop `reactor`, which must live until the process ends, and a
/// broken pipe is an error of the write alone. Once in a process.
/// The answer becomes true with the first of these signals.
const std::atomic<bool>& end_on_signals(Reactor& reactor);

/// The first of these signals; 0: none came yet.
int ended_by();

/// A crash ends the process at once, with a core dump where those are wanted. Libraries of fabrics
/// (psm_infinipath, psm2) put handlers in the way that take locks and may never end: whoever waits
/// for this process would wait for ever.
void crash_at_once();

/// Logs why the process ends; its exit status.
int fail_with(const std::string& sentence);

}  // namespace stdchk
