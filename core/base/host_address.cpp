#include "core/base/host_address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "core/base/descriptor.h"

namespace stdchk {
namespace {

/// Any port: connect(2) of a datagram socket sends nothing.
constexpr std::uint16_t kSomePort = 9;

}  // namespace

std::optional<std::uint32_t> ipv4_of(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) {
    return std::nullopt;
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  return ntohl(address.sin_addr.s_addr);
}

std::optional<std::uint32_t> own_address_to(const std::string& host) {
  const auto to = ipv4_of(host);
  return to ? own_address_to(*to) : std::nullopt;
}

std::optional<std::uint32_t> own_address_to(std::uint32_t host) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kSomePort);
  address.sin_addr.s_addr = htonl(host);
  socklen_t length = sizeof address;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return std::nullopt;
  }
  return ntohl(address.sin_addr.s_addr);
}

}  // namespace stdchk
