#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "fork/process/sandbox.h"

namespace stdchk::fork {

/// A Subnet is the IPv4 range out of which each family gets a part of 256 addresses.
struct Subnet {
  std::uint32_t base = 0;  ///< in the host's byte order
  std::uint32_t families = 0;
};
/// Reads "10.90.0.0/16"; the prefix is from 8 to 24. Errors: a sentence.
Outcome<Subnet> parse_subnet(const std::string& text);
std::string address_text(std::uint32_t ip);

/// A Cable connects a sandbox to the bridge: the sandbox's interface has an address.
struct Cable {
  pid_t process = 0;            ///< the sandbox's first process
  std::uint32_t host_part = 0;  ///< 2 to 254: the last byte of its address
};

/// A Tunnel is a VXLAN (RFC 7348) that connects the bridges of the hosts of one ticket. Addresses are
/// those between hosts, in the host's byte order.
struct Tunnel {
  std::uint32_t number = 0;  ///< 1 to 2^24 - 1; the same on all hosts of the ticket, and no other's
  std::uint32_t own = 0;
  std::vector<std::uint32_t> peers;  ///< all other hosts of the ticket
};

/// A FamilyNetwork is the switched network of one family: a process, its clones, and theirs. Clones
/// reach each other, and the address 1 of their subnet, which is the parent's host. Without
/// Reach::kOutside, the host forwards nothing of theirs.
///
/// The bridge has its own network namespace, which ends with this process. So the interface
/// "sfN" of the host, which is a cable to the bridge, goes too when this process is killed. Tunnels
/// to other hosts end in the same way.
///
/// Owns: the namespace. Interfaces of ended sandboxes go with these.
/// Threads: one; calls run ip(8) and wait for it, at most 10 s. Errors: a sentence.
class FamilyNetwork {
 public:
  enum class Reach : std::uint8_t { kFamily, kOutside };
  /// The longest packet of all interfaces. VXLAN over Ethernet leaves room for 1450 bytes.
  static constexpr int kMtu = 1400;

  /// `index` is the family's number in `subnet`.
  FamilyNetwork(const Subnet& subnet, std::uint32_t index, Reach reach);
  /// The part on a host that is not the parent's: take() gives only `parts`, and the host has no
  /// address in the network.
  FamilyNetwork(std::uint32_t base, std::vector<std::uint32_t> parts, Reach reach);
  ~FamilyNetwork();
  FamilyNetwork(const FamilyNetwork&) = delete;
  FamilyNetwork& operator=(const FamilyNetwork&) = delete;

  /// Whether the host has an interface with the name of network `index`.
  static bool is_taken(std::uint32_t index);
  /// Makes the network. The end of the parent's host has the address with the last byte 1.
  Outcome<void> start();
  Outcome<void> add_tunnel(const Tunnel& tunnel);
  void remove_tunnel(std::uint32_t number);
  /// Takes a free last byte; 0: there is none.
  std::uint32_t take();
  void give_back(std::uint32_t host_part);
  Outcome<void> connect(const std::vector<Cable>& cables);
  /// Makes a tap device (a network interface whose packets a program reads and writes) on the
  /// bridge. It ends with its descriptor. No packet passes before direct().
  Outcome<Descriptor> add_tap(const std::string& name);
  /// A Direction says which port of the bridge has which machine behind it.
  struct Direction {
    std::string hardware_address;
    std::string port;
  };
  /// Only this port gets packets for the hardware address, and may send under it. The port of a tap
  /// device may send under no other address.
  Outcome<void> direct(const std::vector<Direction>& directions);
  Address address(std::uint32_t host_part) const;
  std::uint32_t base() const { return base_; }
  bool reaches_outside() const { return reach_ == Reach::kOutside; }

 private:
  Outcome<void> connect_host();
  std::string interface() const;

  const std::uint32_t base_;
  const std::uint32_t index_;  ///< names the interface on the parent's host
  const Reach reach_;
  const bool is_parents_host_;
  std::vector<std::uint32_t> parts_;  ///< free addresses of a far host, for take()
  Descriptor namespace_;
  std::set<std::uint32_t> taken_;
  std::uint32_t taken_last_ = 0;
  std::uint64_t cables_made_ = 0;
};

}  // namespace stdchk::fork
