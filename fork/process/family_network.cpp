#include "fork/process/family_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

namespace stdchk::fork {
namespace {

constexpr int kIpMillisecondsMax = 10'000;
/// IANA's for VXLAN.
constexpr int kTunnelPort = 4789;
constexpr std::uint32_t kPartMin = 2;
constexpr std::uint32_t kPartsMax = 253;  // to 254

/// An Inside keeps the calling thread in the network namespace `there` until its end.
class Inside {
 public:
  explicit Inside(int there) {
    if (there < 0) return;
    own_ = Descriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!own_ || ::setns(there, CLONE_NEWNET) != 0) std::abort();
  }
  ~Inside() {
    if (own_ && ::setns(own_.get(), CLONE_NEWNET) != 0) std::abort();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Descriptor own_;
};

/// Runs `PROGRAM -batch -` with `commands` as its input, in the network namespace `where`; -1: in
/// this process's. The program is ip(8) or bridge(8). Errors: what it says.
Outcome<void> run_batch(const char* program, const std::string& commands, int where) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return problem(fmt::format("{}: no pipe", program));
  const Descriptor in_read(in[0]);
  Descriptor in_write(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return problem(fmt::format("{}: no pipe", program));
  const Descriptor out_read(out[0]);
  Descriptor out_write(out[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, out[1], 2);
  const char* argv[] = {program, "-batch", "-", nullptr};
  pid_t pid = -1;
  int error = 0;
  {
    const Inside inside(where);
    error = ::posix_spawnp(&pid, program, &actions, nullptr, const_cast<char**>(argv), environ);
  }
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return problem(
        fmt::format("{}(8) cannot be started: {}. Install iproute2, or use --network none.",
                    program, std::strerror(error)));
  }
  out_write = Descriptor();
  // A pipe holds 64 KiB: 255 cables are less.
  const ssize_t written = ::write(in[1], commands.data(), commands.size());
  in_write = Descriptor();
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd ended{process.get(), POLLIN, 0};
  if (::poll(&ended, 1, kIpMillisecondsMax) != 1) ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  char said[512] = {};
  const ssize_t n = ::read(out_read.get(), said, sizeof(said) - 1);
  if (status == 0 && written == static_cast<ssize_t>(commands.size())) return {};
  return problem(fmt::format("{}(8) failed: {}", program, n > 0 ? said : "it said nothing"));
}

Outcome<void> run_ip(const std::string& commands, int where) {
  return run_batch("ip", commands, where);
}

}  // namespace

Outcome<Subnet> parse_subnet(const std::string& text) {
  const auto slash = text.find('/');
  in_addr address{};
  if (slash == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) {
    return problem(fmt::format("\"{}\" is not a network such as 10.90.0.0/16.", text));
  }
  const std::string prefix = text.substr(slash + 1);
  const int bits = prefix.size() <= 2 &&
                           prefix.find_first_not_of("0123456789") == std::string::npos &&
                           !prefix.empty()
                       ? std::stoi(prefix)
                       : 0;
  if (bits < 8 || bits > 24) {
    return problem(fmt::format("The prefix of \"{}\" must be from 8 to 24.", text));
  }
  const std::uint32_t base = ntohl(address.s_addr);
  if ((base & ((std::uint32_t{1} << (32 - bits)) - 1)) != 0) {
    return problem(fmt::format("\"{}\" has bits behind its prefix.", text));
  }
  return Subnet{base, std::uint32_t{1} << (24 - bits)};
}

std::string address_text(std::uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, (ip >> 16) & 255, (ip >> 8) & 255, ip & 255);
}

FamilyNetwork::FamilyNetwork(const Subnet& subnet, std::uint32_t index, Reach reach)
    : base_(subnet.base + index * 256), index_(index), reach_(reach), is_parents_host_(true) {}

FamilyNetwork::FamilyNetwork(std::uint32_t base, std::vector<std::uint32_t> parts, Reach reach)
    : base_(base), index_(0), reach_(reach), is_parents_host_(false), parts_(std::move(parts)) {}

FamilyNetwork::~FamilyNetwork() = default;

std::string FamilyNetwork::interface() const { return fmt::format("sf{}", index_); }

bool FamilyNetwork::is_taken(std::uint32_t index) {
  return ::access(fmt::format("/sys/class/net/sf{}", index).c_str(), F_OK) == 0;
}

Address FamilyNetwork::address(std::uint32_t host_part) const {
  return {base_ + host_part, 0xffffff00, reaches_outside() ? base_ + 1 : 0};
}

Outcome<void> FamilyNetwork::start() {
  const Descriptor own(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!own || ::unshare(CLONE_NEWNET) != 0) {
    return problem(fmt::format("No network namespace: {}", std::strerror(errno)));
  }
  namespace_ = Descriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::setns(own.get(), CLONE_NEWNET) != 0) std::abort();
  auto made = run_ip(fmt::format("link add bridge mtu {} type bridge\nlink set bridge up\n", kMtu),
                     namespace_.get());
  return made && is_parents_host_ ? connect_host() : made;
}

Outcome<void> FamilyNetwork::connect_host() {
  const std::string name = interface();
  auto made = run_ip(fmt::format("link add host mtu {0} type veth peer name {1} mtu {0} netns {2}\n"
                                 "link set host master bridge up\n",
                                 kMtu, name, ::getpid()),
                     namespace_.get());
  if (!made) return made;
  std::ofstream("/proc/sys/net/ipv4/conf/" + name + "/forwarding")
      << (reaches_outside() ? "1" : "0");
  std::ofstream("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6") << "1";
  return run_ip(
      fmt::format("addr add {1}/24 dev {0}\nlink set {0} up\n", name, address_text(address(1).ip)),
      -1);
}

Outcome<void> FamilyNetwork::add_tunnel(const Tunnel& tunnel) {
  // The device has this process's network namespace as its outside, and the bridge's as its inside.
  auto made = run_ip(
      fmt::format(
          "link add vx{0} mtu {1} netns /proc/{2}/fd/{3} type vxlan id {0} dstport {4} local "
          "{5}\n",
          tunnel.number, kMtu, ::getpid(), namespace_.get(), kTunnelPort, address_text(tunnel.own)),
      -1);
  if (made) {
    made = run_ip(fmt::format("link set vx{} master bridge up\n", tunnel.number), namespace_.get());
  }
  // Packets to all, and to clones that are not known yet, go to every host of the ticket.
  std::string entries;
  for (const std::uint32_t peer : tunnel.peers) {
    entries += fmt::format("fdb append 00:00:00:00:00:00 dev vx{} dst {}\n", tunnel.number,
                           address_text(peer));
  }
  if (made && !entries.empty()) made = run_batch("bridge", entries, namespace_.get());
  if (!made) remove_tunnel(tunnel.number);
  return made;
}

void FamilyNetwork::remove_tunnel(std::uint32_t number) {
  (void)run_ip(fmt::format("link delete vx{}\n", number), namespace_.get());
}

std::uint32_t FamilyNetwork::take() {
  if (!is_parents_host_) {
    if (parts_.empty()) return 0;
    const std::uint32_t part = parts_.back();
    parts_.pop_back();
    return part;
  }
  // Takes the parts in turn. A returned part may still be in use, because the kernel removes
  // namespaces in the background.
  for (std::uint32_t tries = 0; tries < kPartsMax; tries++) {
    const std::uint32_t part = kPartMin + taken_last_++ % kPartsMax;
    if (taken_.insert(part).second) return part;
  }
  return 0;
}

void FamilyNetwork::give_back(std::uint32_t host_part) { taken_.erase(host_part); }

Outcome<void> FamilyNetwork::connect(const std::vector<Cable>& cables) {
  std::string commands;
  for (const Cable& cable : cables) {
    // The hardware address says which family and which clone: locally administered.
    commands += fmt::format(
        "link add c{0} mtu {5} type veth peer name eth0 address "
        "02:5f:00:{1:02x}:{2:02x}:{3:02x} mtu {5} netns {4}\n"
        "link set c{0} master bridge up\n",
        ++cables_made_, (base_ >> 16) & 255, (base_ >> 8) & 255, cable.host_part, cable.process,
        kMtu);
  }
  return run_ip(commands, namespace_.get());
}

Outcome<Descriptor> FamilyNetwork::add_tap(const std::string& name) {
  const auto failed = [](const char* what) {
    return problem(fmt::format("{}: {}", what, std::strerror(errno)));
  };
  Descriptor tap;
  {
    const Inside inside(namespace_.get());
    tap = Descriptor(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  }
  if (!tap) return failed("/dev/net/tun");
  ifreq request{};
  if (name.size() >= sizeof(request.ifr_name)) return problem(fmt::format("{} is too long", name));
  std::memcpy(request.ifr_name, name.data(), name.size());
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return failed("The tap device");
  auto made =
      run_ip(fmt::format("link set {} mtu {} master bridge up\n", name, kMtu), namespace_.get());
  // A locked port takes only packets whose sender the bridge expects at this port (Linux 5.18).
  if (made) {
    made = run_batch("bridge", fmt::format("link set dev {} learning off locked on\n", name),
                     namespace_.get());
  }
  if (!made) return problem(made.error());
  return tap;
}

Outcome<void> FamilyNetwork::direct(const std::vector<Direction>& directions) {
  std::string commands;
  for (const Direction& direction : directions) {
    commands += fmt::format("fdb replace {} dev {} master static\n", direction.hardware_address,
                            direction.port);
  }
  return run_batch("bridge", commands, namespace_.get());
}

}  // namespace stdchk::fork
