#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "fork/process/family_network.h"
#include "fork/vm/qemu_command.h"

namespace stdchk::fork::vm {

/// A MachineNetwork is the network of a family of machines on this host: a FamilyNetwork with tap
/// devices. Each machine has a number in this network, the part. MAC and IP address of the machine
/// end with this byte.
///
/// Owns: the network, which ends with this object, and when this process is killed. Threads: one.
/// Errors: a sentence. Limits: root only. Machines reach neither the outside nor machines of
/// other hosts.
class MachineNetwork {
 public:
  /// Takes a free part of `subnet`.
  static Outcome<std::unique_ptr<MachineNetwork>> make(const Subnet& subnet);

  /// A Part is free again when its last copy is gone. It must not outlive the network.
  using Part = std::shared_ptr<const std::uint32_t>;
  /// Takes the part of a new machine. nullptr: there is none.
  Part take();
  /// A Socket is a tap device for one QEMU of the machine. The caller closes `tap` when QEMU has
  /// inherited it; then the device ends with QEMU.
  struct Socket {
    Port port;
    Descriptor tap;
  };
  Outcome<Socket> add_socket(std::uint32_t part);
  /// From now on the bridge sends packets for a machine through the port of this machine only.
  Outcome<void> direct(const std::vector<Port>& ports);
  std::string address(std::uint32_t part) const;
  /// "HARDWARE-ADDRESS IP/PREFIX", as guest_protocol.md has it.
  std::string addresses(std::uint32_t part) const;

 private:
  explicit MachineNetwork(std::unique_ptr<FamilyNetwork> network) : network_(std::move(network)) {}

  std::unique_ptr<FamilyNetwork> network_;
  std::uint64_t sockets_made_ = 0;
};

/// The hardware address of a machine: locally administered. "02:5f:01" tells the guest's library
/// which interface is the family's. `base` is the network's first IPv4 address.
std::string hardware_address_in(std::uint32_t base, std::uint32_t part);

}  // namespace stdchk::fork::vm
