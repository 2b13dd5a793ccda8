#include "fork/process/nat.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "fork/ticket/program.h"

namespace stdchk::fork {
namespace {

constexpr int kStartMillisecondsMax = 10'000;
/// A daemon that was killed a moment ago still has rules: its shell undoes them in this time.
constexpr int kLockMillisecondsMax = 5'000;
constexpr int kLockAgainMilliseconds = 20;
constexpr const char* kForward = "/proc/sys/net/ipv4/ip_forward";

/// $1: the rules; $2: ip_forward as it was. Undoes all when its input ends. No signal that ends the
/// daemon's process group ends it before.
constexpr const char* kScript = R"(trap '' INT TERM HUP
said=$(printf '%s' "$1" | nft -f - 2>&1) || { echo "$said"; exit 1; }
echo 1 >/proc/sys/net/ipv4/ip_forward || { nft delete table ip stdchk_fork; exit 1; }
echo ready
cat >/dev/null
nft delete table ip stdchk_fork
echo "$2" >/proc/sys/net/ipv4/ip_forward
)";

/// Takes the lock of this network namespace's rules, in a folder of root. The lock ends with the
/// last process that has the descriptor.
Outcome<Descriptor> lock_rules() {
  struct stat here {};
  if (::stat("/proc/self/ns/net", &here) != 0) return problem("No network namespace.");
  const std::string path = fmt::format("/run/stdchk-fork/nat-{}", here.st_ino);
  Descriptor lock(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return problem(fmt::format("{} cannot be made: {}.", path, std::strerror(errno)));
  for (int waited = 0; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
       waited += kLockAgainMilliseconds) {
    if (waited >= kLockMillisecondsMax) {
      return problem("Another stdchk-forkd of this host has --nat. Only one can have it.");
    }
    ::poll(nullptr, 0, kLockAgainMilliseconds);
  }
  return lock;
}

}  // namespace

std::string nat_rules(const Subnet& subnet, bool forwards_only_clones) {
  const int bits = 24 - std::countr_zero(subnet.families);
  const std::string all = fmt::format("{}/{}", address_text(subnet.base), bits);
  return fmt::format(R"(table ip stdchk_fork
delete table ip stdchk_fork
table ip stdchk_fork {{
  chain outside {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {0} ip daddr != {0} masquerade
  }}
  chain between {{
    type filter hook forward priority filter; policy {1};
    iifname != "sf*" ip saddr {0} drop
    ip saddr {0} ip daddr {0} drop
    ip saddr {0} accept
    ip daddr {0} ct state established,related accept
    ip daddr {0} drop
  }}
}}
)",
                     all, forwards_only_clones ? "drop" : "accept");
}

Outcome<Nat> Nat::start(const Subnet& subnet) {
  const auto lock = lock_rules();
  if (!lock) return problem(lock.error().text);
  std::string before;
  std::ifstream(kForward) >> before;
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return problem("no pipe");
  const Descriptor their_in(in[0]);
  Descriptor life(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return problem("no pipe");
  const Descriptor our_out(out[0]);
  Descriptor their_out(out[1]);
  // The shell keeps the lock until it has undone all.
  if (::fcntl(lock->get(), F_SETFD, 0) != 0) return problem("The lock of --nat cannot be kept.");
  if (spawn({"setsid", "sh", "-c", kScript, "sh", nat_rules(subnet, before == "0"), before},
            their_in.get(), their_out.get()) < 0) {
    return problem(fmt::format("setsid(1) cannot be started: {}.", std::strerror(errno)));
  }
  their_out = Descriptor();
  pollfd said{our_out.get(), POLLIN, 0};
  char text[400] = {};
  const bool came = ::poll(&said, 1, kStartMillisecondsMax) == 1;
  const ssize_t n = came ? ::read(our_out.get(), text, sizeof(text) - 1) : 0;
  if (n > 0 && std::string_view(text).starts_with("ready")) return Nat(std::move(life));
  return problem(fmt::format("The rules of --nat cannot be set by nft(8): {}. Install nftables.",
                             n > 0 ? text : "no answer"));
}

}  // namespace stdchk::fork
