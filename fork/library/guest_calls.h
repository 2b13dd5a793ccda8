#pragma once

#include "fork/library/stdchk_fork.h"

/// The calls of stdchk_fork.h inside a virtual machine of `stdchk vm`: they clone the whole
/// machine. The protocol is in fork/vm/guest_protocol.md. All block; only the call `clone` may take
/// more than a minute.
namespace stdchk::fork::guest {

/// Whether this machine has the port stdchk.fork.0.
bool is_guest();

int request_ticket(uint32_t n, sf_ticket* ticket);
/// Returns the clone's id, 0 in the parent, or a negative errno.
int clone(const sf_ticket* ticket);
/// Asks the host who this machine is. Returns its id, 0 if it is no clone, or a negative errno.
int identify();
/// Ends the machine, unless it is no clone.
void exit_with(int status, const void* value, size_t bytes);
int join(const sf_ticket* ticket, sf_result* results);
int kill(const sf_ticket* ticket);

}  // namespace stdchk::fork::guest
