#include "container/box/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <net/if.h>
#include <netinet/if_ether.h>
#include <netpacket/packet.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace stdchk::container {
namespace {

constexpr int kTunnelPort = 4789;  // IANA's for VXLAN
constexpr const char* kInside = "eth0";

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

std::string outside_of(const std::string& tag, const std::string& box) {
  return fmt::format("sc{}.{}", tag, box);
}

/// An ArpFrame is an ARP packet (RFC 826) in an Ethernet frame.
struct ArpFrame {
  ether_header ethernet;
  ether_arp arp;
};

/// Broadcasts an ARP announcement by the interface eth0 of this thread's network namespace.
Outcome<void> announce_here() {
  const Descriptor socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket) return problem(errno_text("a packet socket"));
  ifreq hardware{}, address{};
  std::strncpy(hardware.ifr_name, kInside, IFNAMSIZ - 1);
  std::strncpy(address.ifr_name, kInside, IFNAMSIZ - 1);
  if (::ioctl(socket.get(), SIOCGIFHWADDR, &hardware) != 0 ||
      ::ioctl(socket.get(), SIOCGIFADDR, &address) != 0) {
    return problem(errno_text("the addresses of a container"));
  }
  ArpFrame frame{};
  std::memset(frame.ethernet.ether_dhost, 0xff, ETH_ALEN);
  std::memcpy(frame.ethernet.ether_shost, hardware.ifr_hwaddr.sa_data, ETH_ALEN);
  frame.ethernet.ether_type = htons(ETHERTYPE_ARP);
  frame.arp.arp_hrd = htons(ARPHRD_ETHER);
  frame.arp.arp_pro = htons(ETHERTYPE_IP);
  frame.arp.arp_hln = ETH_ALEN;
  frame.arp.arp_pln = sizeof frame.arp.arp_spa;
  frame.arp.arp_op = htons(ARPOP_REQUEST);
  std::memcpy(frame.arp.arp_sha, hardware.ifr_hwaddr.sa_data, ETH_ALEN);
  const auto* const ip = reinterpret_cast<const sockaddr_in*>(&address.ifr_addr);
  std::memcpy(frame.arp.arp_spa, &ip->sin_addr, sizeof frame.arp.arp_spa);
  std::memcpy(frame.arp.arp_tpa, &ip->sin_addr, sizeof frame.arp.arp_tpa);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = static_cast<int>(::if_nametoindex(kInside));
  to.sll_halen = ETH_ALEN;
  std::memset(to.sll_addr, 0xff, ETH_ALEN);
  if (::sendto(socket.get(), &frame, sizeof frame, 0, reinterpret_cast<const sockaddr*>(&to),
               sizeof to) < 0) {
    return problem(errno_text("a container's announcement"));
  }
  return {};
}

/// The names of all devices of this network namespace that begin with `begin`.
std::vector<std::string> devices(const std::string& begin) {
  std::vector<std::string> names;
  const auto shown = run_program({.words = {"ip", "-o", "link", "show"}});
  if (!shown) return names;
  // "7: NAME@OTHER: <FLAGS> ..."
  for (std::size_t at = 0; at < shown->size();) {
    const std::size_t end = std::min(shown->find('\n', at), shown->size());
    const std::size_t name = shown->find(": ", at) + 2;
    const std::string text = shown->substr(name, shown->find_first_of(":@", name) - name);
    if (text.starts_with(begin)) names.push_back(text);
    at = end + 1;
  }
  return names;
}

}  // namespace

std::string ethernet_address_of(const std::string& address) {
  in_addr_t number = 0;
  ::inet_pton(AF_INET, address.c_str(), &number);
  const std::uint32_t bits = ntohl(number);
  // 02 in the first byte: a unicast address that the site gives itself (IEEE 802).
  return fmt::format("02:73:{:02x}:{:02x}:{:02x}:{:02x}", bits >> 24, bits >> 16 & 0xff,
                     bits >> 8 & 0xff, bits & 0xff);
}

JobNetwork::JobNetwork(NetworkDescription network)
    : network_(std::move(network)),
      bridge_(fmt::format("scb{:06x}", network_.number)),
      tunnel_(fmt::format("scx{:06x}", network_.number)) {}

/// Devices belong to a network namespace, and several of these may see one /run.
std::string JobNetwork::lock_path() const {
  struct stat here {};
  ::stat("/proc/thread-self/ns/net", &here);
  return fmt::format("/run/stdchk-{}-{}", bridge_, here.st_ino);
}

/// Takes the shared lock. A file that was removed meanwhile is made again.
Outcome<void> JobNetwork::share() {
  const std::string path = lock_path();
  for (;;) {
    lock_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_ || ::flock(lock_.get(), LOCK_SH) != 0) return problem(errno_text(path));
    struct stat held {};
    if (::fstat(lock_.get(), &held) == 0 && held.st_nlink > 0) return {};
  }
}

Outcome<void> JobNetwork::make() {
  const MutexLock lock(mutex_);
  if (made_) return {};
  if (auto done = make_devices(); !done) return done;
  made_ = true;
  return {};
}

Outcome<void> JobNetwork::make_devices() {
  if (auto shared = share(); !shared) return shared;
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
    if (!added && added.error().text.find("File exists") == std::string::npos) {
      return problem(added.error());
    }
  }
  return {};
}

void JobNetwork::remove() {
  const MutexLock lock(mutex_);
  made_ = false;
  // flock(2): of several nodes that try at the same time, the last one gets the lock alone.
  if (!lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    lock_ = Descriptor();
    return;
  }
  if (has_device_here(tunnel_)) (void)ip({"link", "delete", tunnel_});
  if (has_device_here(bridge_)) (void)ip({"link", "delete", bridge_});
  ::unlink(lock_path().c_str());
  lock_ = Descriptor();
}

void JobNetwork::remove_after(const std::string& tag) {
  // Sockets with unsent bytes keep a network namespace, and with it the pair, for minutes.
  for (const std::string& name : devices(outside_of(tag, ""))) (void)ip({"link", "delete", name});
  if (share()) remove();
}

BoxNetwork::BoxNetwork(const std::string& tag, std::uint32_t box)
    : name_(fmt::format("stdchk-{}-{}", tag, box)),
      outside_(outside_of(tag, std::to_string(box))) {}

Outcome<void> BoxNetwork::make(const JobNetwork& job, const std::string& address,
                               bool locked) const {
  remove();
  if (auto made = ip({"netns", "add", name_}); !made) return made;
  const std::string mtu = std::to_string(kBoxMtu);
  if (auto made =
          ip({"link", "add", "name", outside_, "mtu", mtu, "type", "veth", "peer", "name", kInside,
              "address", ethernet_address_of(address), "mtu", mtu, "netns", name_});
      !made) {
    return made;
  }
  // Set the drop rule before the address. Otherwise the kernel would answer packets of saved
  // connections by a reset.
  if (locked) {
    if (auto done = lock(); !done) return done;
  }
  const std::string with_prefix = fmt::format("{}/{}", address, job.description().prefix_bits);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"-n", name_, "link", "set", "lo", "up"},
        {"-n", name_, "addr", "add", with_prefix, "dev", kInside},
        {"-n", name_, "link", "set", kInside, "up"},
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

Outcome<void> BoxNetwork::announce() const {
  const Descriptor space(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
  if (!space) return problem(errno_text(path()));
  Outcome<void> done;
  // setns(2) moves one thread, so this thread need not find its way back.
  std::thread([&] {
    done = ::setns(space.get(), CLONE_NEWNET) == 0 ? announce_here() : problem(errno_text(path()));
  }).join();
  return done;
}

Outcome<int> BoxNetwork::unacknowledged() const {
  auto shown = run_program({.words = {"ss", "-tniH"}, .net_namespace = path()});
  if (!shown) return problem(std::move(shown.error()));
  int count = 0;
  for (std::size_t at = 0; (at = shown->find(" unacked:", at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace stdchk::container
