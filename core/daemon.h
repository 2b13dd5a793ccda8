#pragma once

#include <atomic>
#include <string>

#include "core/reactor.h"

namespace stdchk {

/// From now on SIGTERM and SIGINT stop `reactor`, which must live until the process ends, and a
/// broken pipe is an error of the write alone. Once in a process.
/// The answer becomes true with the first of these signals.
const std::atomic<bool>& end_on_signals(Reactor& reactor);

/// Logs why the process ends; its exit status.
int fail_with(const std::string& sentence);

}  // namespace stdchk
