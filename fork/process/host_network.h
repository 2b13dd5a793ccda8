#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stdchk::fork {

/// A HostNetwork is the part of a family's network on another host, as the parent's host decides
/// it. All addresses are IPv4 in the host's byte order.
///
///     wire: HostNetwork::Head, then the last bytes of addresses (4 bytes each), then the peers
///     (4 bytes each), in the byte order of the hosts
struct HostNetwork {
  struct Head {
    std::uint32_t tunnel = 0;
    std::uint32_t base = 0;
    std::uint32_t own = 0;
    std::uint32_t has_gateway = 0;
    std::uint32_t parts = 0;
    std::uint32_t peers = 0;
  };
  static constexpr std::uint32_t kPartsMax = 253;
  static constexpr std::uint32_t kPeersMax = 1024;

  std::uint32_t tunnel = 0;          ///< number of the VXLAN, 24 bits; 0: only the loopback
  std::uint32_t base = 0;            ///< the family's first address; it has 256
  std::uint32_t own = 0;             ///< the host's address, between hosts
  bool has_gateway = false;          ///< clones reach the outside by the family's address 1
  std::vector<std::uint32_t> parts;  ///< last bytes of the addresses of its clones, 2 to 254
  std::vector<std::uint32_t> peers;  ///< the other hosts, between hosts
  bool operator==(const HostNetwork&) const = default;
};
std::string encode(const HostNetwork& network);
/// Returns nothing for bytes that are no HostNetwork. No bytes are one without a tunnel.
std::optional<HostNetwork> decode_network(std::string_view bytes);

}  // namespace stdchk::fork
