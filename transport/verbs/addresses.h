#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace stdchk::transport::verbs {

inline constexpr std::string_view kAddressPrefix = "verbs:";

void set_port(sockaddr_storage& address, std::uint16_t port);
inline sockaddr* generic(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr*>(&address);
}
/// True for wildcard and loopback addresses, which belong to no device.
bool is_any_device(const sockaddr_storage& address);
/// Returns the addresses of interfaces that are up, IPv4 first, without loopback and link-local
/// ones.
std::vector<sockaddr_storage> addresses_of_host();

}  // namespace stdchk::transport::verbs
