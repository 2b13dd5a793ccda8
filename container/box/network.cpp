#include "container/box/network.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
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

std::string outside_of(const std::string& tag, const std::string& box) {
  return fmt::format("sc{}.{}", tag, box);
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
    if (!added && added.error().find("File exists") == std::string::npos) {
      return problem(added.error());
    }
  }
  return {};
}

void JobNetwork::remove() {
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
  if (auto made = ip({"link", "add", "name", outside_, "mtu", mtu, "type", "veth", "peer", "name",
                      "eth0", "mtu", mtu, "netns", name_});
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
