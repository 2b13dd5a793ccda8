#pragma once

namespace stdchk::transport::tcp {

/// Sets the options that all sockets of links need. Returns `socket`.
int set_up_socket(int socket);
/// The socket reports no event for fewer than `bytes`, unless the peer has closed it.
void set_wake_bytes(int socket, int bytes);

}  // namespace stdchk::transport::tcp
