#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "core/base/result.h"

/// Addresses of transports that are reached by an IP address and a port: "tcp:10.0.0.1:7471".
namespace stdchk::transport {

/// Parses `text`: `prefix`, a numeric address (IPv6 in brackets), a colon, a port. Never asks a
/// name server.
Result<sockaddr_storage> parse_address(std::string_view prefix, std::string_view text);
std::string address_text(std::string_view prefix, const sockaddr_storage& address);
socklen_t address_bytes(const sockaddr_storage& address);

}  // namespace stdchk::transport
