#include "container/box/network.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace stdchk::container {
namespace {

constexpr int kTunnelPort = 4789;  // IANA's for VXLAN

// Loopback stays open: its packets are inside one image.
constexpr const char* kLocked = R"(
table inet stdchk
delete table inet stdchk
table inet stdchk {
  chain in { type filter hook input priority -300; policy drop; iif "lo" accept; }
  chain out { type filter hook output priority -300; policy drop; oif "lo" accept; }
}
)";
constexpr const char* kOpened = "table inet stdchk\ndelete table inet stdchk\n";

Outcome<void> ip(std::vector<std::string> words) {
  words.insert(words.begin(), "ip");
  auto done = run_program({.words = std::move(words)});
  if (!done) return problem(std::move(done.error()));
  return {};
}

/// Sysfs shows the namespace of the process that mounted it: ip(8) asks for the thread's own.
bool has_device_here(const std::string& name) {
  return ip({"link", "show", "dev", name}).has_value();
}

}  // namespace

JobNetwork::JobNetwork(NetworkDescription network)
    : network_(std::move(network)),
      bridge_(fmt::format("scb{:06x}", network_.number)),
      tunnel_(fmt::format("scx{:06x}", network_.number)) {}

Outcome<void> JobNetwork::make() const {
  // Two nodes of one host may make the device at the same time. The slower node finds it made.
  if (!has_device_here(bridge_)) {
    auto made =
        ip({"link", "add", "name", bridge_, "mtu", std::to_string(kBoxMtu), "type", "bridge"});
    if (!made && !has_device_here(bridge_)) return made;
  }
  if (auto up = ip({"link", "set", bridge_, "up"}); !up) return up;
  if (network_.peers.empty()) return {};
  if (!has_device_here(tunnel_)) {
    auto made = ip({"link", "add", "name", tunnel_, "mtu", std::to_string(kBoxMtu), "type", "vxlan",
                    "id", std::to_string(network_.number), "dstport", std::to_string(kTunnelPort),
                    "local", network_.underlay});
    if (!made && !has_device_here(tunnel_)) return made;
  }
  if (auto set = ip({"link", "set", tunnel_, "master", bridge_, "up"}); !set) return set;
  for (const std::string& peer : network_.peers) {
    // Packets to all, and to stations that are not known yet, go to every host of the job.
    const auto added = run_program(
        {.words = {"bridge", "fdb", "append", "00:00:00:00:00:00", "dev", tunnel_, "dst", peer}});
    if (!added && added.error().find("File exists") == std::string::npos) {
      return problem(added.error());
    }
  }
  return {};
}

void JobNetwork::remove() const {
  const auto ports = run_program({.words = {"ip", "-o", "link", "show", "master", bridge_}});
  if (!ports) return;
  for (std::size_t at = 0; at < ports->size();) {
    const std::size_t end = std::min(ports->find('\n', at), ports->size());
    if (ports->substr(at, end - at).find(": " + tunnel_ + ":") == std::string::npos) return;
    at = end + 1;
  }
  (void)ip({"link", "delete", tunnel_});
  (void)ip({"link", "delete", bridge_});
}

BoxNetwork::BoxNetwork(const std::string& tag, std::uint32_t box)
    : name_(fmt::format("stdchk-{}-{}", tag, box)), outside_(fmt::format("sc{}.{}", tag, box)) {}

Outcome<void> BoxNetwork::make(const JobNetwork& job, const std::string& address,
                               bool locked) const {
  remove();
  if (auto made = ip({"netns", "add", name_}); !made) return made;
  const std::string mtu = std::to_string(kBoxMtu);
  if (auto made = ip({"link", "add", "name", outside_, "mtu", mtu, "type", "veth", "peer", "name",
                      "eth0", "mtu", mtu, "netns", name_});
      !made) {
    return made;
  }
  // The drop rule comes before the address, so that nobody is told that a connection is unknown.
  if (locked) {
    if (auto done = lock(); !done) return done;
  }
  const std::string with_prefix = fmt::format("{}/{}", address, job.description().prefix_bits);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"-n", name_, "link", "set", "lo", "up"},
        {"-n", name_, "addr", "add", with_prefix, "dev", "eth0"},
        {"-n", name_, "link", "set", "eth0", "up"},
        {"link", "set", outside_, "master", job.bridge(), "up"}}) {
    if (auto done = ip(words); !done) return done;
  }
  return {};
}

void BoxNetwork::remove() const {
  // The pair first: sockets with unsent bytes keep a namespace, and its end of the pair, alive.
  if (has_device_here(outside_)) (void)ip({"link", "delete", outside_});
  if (::access(path().c_str(), F_OK) == 0) (void)ip({"netns", "delete", name_});
}

Outcome<void> BoxNetwork::lock() const {
  auto done = run_program({.words = {"nft", "-f", "-"}, .input = kLocked, .net_namespace = path()});
  if (!done) return problem(std::move(done.error()));
  return {};
}

Outcome<void> BoxNetwork::open() const {
  auto done = run_program({.words = {"nft", "-f", "-"}, .input = kOpened, .net_namespace = path()});
  if (!done) return problem(std::move(done.error()));
  return {};
}

Outcome<int> BoxNetwork::unacknowledged() const {
  auto shown = run_program({.words = {"ss", "-tniH"}, .net_namespace = path()});
  if (!shown) return problem(std::move(shown.error()));
  int count = 0;
  for (std::size_t at = 0; (at = shown->find(" unacked:", at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace stdchk::container
