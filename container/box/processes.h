#pragma once

#include <sys/types.h>

#include <vector>

#include "container/program/program.h"

/// The processes of a container, as the host sees them.
namespace stdchk::container {

/// Every process in the process namespace of `init`, which is process 1 of it. Empty: it has ended.
/// Not: processes in nested process namespaces. CRIU cannot save nested namespaces.
std::vector<pid_t> processes_of(pid_t init);

/// Sends SIGSTOP until every process stands still; new processes are found in the next round.
Outcome<void> stop_processes(pid_t init, Duration deadline);
void continue_processes(pid_t init);

/// Ends the container by SIGKILL of its process 1, and waits for that. `init` is a child.
void kill_processes(pid_t init);

}  // namespace stdchk::container
