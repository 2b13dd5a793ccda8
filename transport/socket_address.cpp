#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace stdchk::transport {

Result<sockaddr_storage> parse_address(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return fail(Code::kInvalidArgument, "transport.address");
  text.remove_prefix(prefix.size());
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return fail(Code::kInvalidArgument, "transport.address");
  }
  std::string host(text.substr(0, colon));
  const std::string port(text.substr(colon + 1));
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;  // a name server's delay would stop the reactor
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return fail(Code::kInvalidArgument, "transport.address");
  }
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

std::string address_text(std::string_view prefix, const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (address.ss_family == AF_INET6) {
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &in6.sin6_addr, host.data(), host.size());
    return fmt::format("{}[{}]:{}", prefix, host.data(), ntohs(in6.sin6_port));
  }
  const auto& in = reinterpret_cast<const sockaddr_in&>(address);
  ::inet_ntop(AF_INET, &in.sin_addr, host.data(), host.size());
  return fmt::format("{}{}:{}", prefix, host.data(), ntohs(in.sin_port));
}

socklen_t address_bytes(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace stdchk::transport
