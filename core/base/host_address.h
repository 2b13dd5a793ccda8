#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace stdchk {

/// Returns the first IPv4 address of a host, a name or an address, in this host's byte order. May
/// wait for a name server. Nothing: it has none.
std::optional<std::uint32_t> ipv4_of(const std::string& host);
/// Returns this host's IPv4 address for packets to `host`. Sends nothing. Nothing: `host` has no
/// IPv4 address, or no route leads there.
std::optional<std::uint32_t> own_address_to(const std::string& host);
/// The same for an address in this host's byte order.
std::optional<std::uint32_t> own_address_to(std::uint32_t host);

}  // namespace stdchk
