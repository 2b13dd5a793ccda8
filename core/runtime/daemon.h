#pragma once

#include <atomic>
#include <string>

#include "core/runtime/reactor.h"

namespace stdchk {

/// Makes SIGTERM and SIGINT stop `reactor`, which must live until the process ends. Turns SIGPIPE
/// off, so that a broken pipe is only an error of the write. Call it once in a process. The
/// returned flag becomes true with the first such signal.
const std::atomic<bool>& end_on_signals(Reactor& reactor);

/// Returns the first of these signals; 0: none came yet.
int ended_by();

/// Makes a crash end the process at once, with a core dump where enabled. Fabric libraries
/// (psm_infinipath, psm2) install handlers that take locks and may never return. Processes that
/// wait for this process would then hang.
void let_crashes_end_the_process();

/// Logs why the process ends, and returns its exit status.
int fail_with(const std::string& sentence);

}  // namespace stdchk
