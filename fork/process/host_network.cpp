#include "fork/process/host_network.h"

#include <algorithm>
#include <cstring>

namespace stdchk::fork {
namespace {

constexpr std::uint32_t kTunnelsMax = std::uint32_t{1} << 24;

void add(std::string& bytes, const std::vector<std::uint32_t>& numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()),
               numbers.size() * sizeof(std::uint32_t));
}

std::vector<std::uint32_t> take(std::string_view& bytes, std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  if (count == 0) return numbers;  // memcpy() takes no nullptr
  std::memcpy(numbers.data(), bytes.data(), count * sizeof(std::uint32_t));
  bytes.remove_prefix(count * sizeof(std::uint32_t));
  return numbers;
}

}  // namespace

std::string encode(const HostNetwork& network) {
  HostNetwork::Head head;
  head.tunnel = network.tunnel;
  head.base = network.base;
  head.own = network.own;
  head.has_gateway = network.has_gateway ? 1 : 0;
  head.parts = static_cast<std::uint32_t>(network.parts.size());
  head.peers = static_cast<std::uint32_t>(network.peers.size());
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  add(bytes, network.parts);
  add(bytes, network.peers);
  return bytes;
}

std::optional<HostNetwork> decode_network(std::string_view bytes) {
  HostNetwork network;
  if (bytes.empty()) return network;
  HostNetwork::Head head;
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  bytes.remove_prefix(sizeof(head));
  if (head.tunnel >= kTunnelsMax || (head.base & 255U) != 0 ||
      head.parts > HostNetwork::kPartsMax || head.peers > HostNetwork::kPeersMax ||
      bytes.size() != (head.parts + head.peers) * sizeof(std::uint32_t)) {
    return std::nullopt;
  }
  network.tunnel = head.tunnel;
  network.base = head.base;
  network.own = head.own;
  network.has_gateway = head.has_gateway != 0;
  network.parts = take(bytes, head.parts);
  network.peers = take(bytes, head.peers);
  const auto is_part = [](std::uint32_t part) { return part >= 2 && part <= 254; };
  if (!std::all_of(network.parts.begin(), network.parts.end(), is_part)) return std::nullopt;
  return network;
}

}  // namespace stdchk::fork
