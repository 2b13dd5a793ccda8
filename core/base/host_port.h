#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk {

/// A HostPort is an address to listen at as a person writes it: "node1", "10.0.0.1:7471", "::1",
/// "[fd00::5]", "[fd00::5]:7471". A colon of an IPv6 address without brackets never begins a port.
struct HostPort {
  std::string host;        ///< without brackets, never empty
  std::uint16_t port = 0;  ///< 0: none was said
};
std::optional<HostPort> parse_host_port(std::string_view text);

/// A host's name or address, without the brackets that an IPv6 address may have.
std::string without_brackets(std::string_view host);

}  // namespace stdchk
