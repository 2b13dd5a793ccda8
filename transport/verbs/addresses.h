#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <vector>

namespace stdchk::transport::verbs {

void set_port(sockaddr_storage& address, std::uint16_t port);
inline sockaddr* generic(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr*>(&address);
}
/// A wildcard or loopback address, which belongs to no device.
bool is_any_device(const sockaddr_storage& address);
/// Addresses of interfaces that are up, IPv4 first; not of loopback, not link-local.
std::vector<sockaddr_storage> addresses_of_host();

}  // namespace stdchk::transport::verbs
