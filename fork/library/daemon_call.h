#pragma once

#include "fork/process/local_protocol.h"

namespace stdchk::fork {

/// Returns $STDCHK_FORKD, or the default socket; the default, too, where the path is longer than
/// 107 bytes.
const char* daemon_path();

/// Connects to stdchk-forkd at daemon_path(). Returns a descriptor, or
/// a negative errno after set_error().
int connect_daemon();

/// Sends one record. `passed`: a descriptor that goes with it; -1: none. Returns 0 or a negative
/// errno.
int send_record(int fd, const local::Record& record, int passed = -1);
/// Receives one record. `passed`: where a descriptor that came with it is put, otherwise -1;
/// nullptr: none is expected. Returns 0 or a negative errno: -EPIPE when the daemon has ended.
int receive_record(int fd, local::Record& record, int* passed = nullptr);

/// Connects to the daemon, sends `record`, and replaces it by the answer. The daemon answers within
/// 60 s.
int call_daemon(local::Record& record);

void set_error(const char* text);
const char* last_error();

}  // namespace stdchk::fork
