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

/// A FamilyNetwork is the switched network of one family: a process, its clones, and theirs. Clones
/// reach each other, and the host's address in their subnet. The host forwards nothing of theirs.
///
/// The bridge has its own network namespace, which ends with this process. So the interface
/// "sfN" of the host, which is a cable to the bridge, goes too when this process is killed.
///
/// Owns: the namespace. Interfaces of ended sandboxes go with these.
/// Threads: one; calls run ip(8) and wait for it, at most 10 s. Errors: a sentence.
class FamilyNetwork {
 public:
  /// `index` is the family's number in `subnet`.
  FamilyNetwork(const Subnet& subnet, std::uint32_t index);
  ~FamilyNetwork();
  FamilyNetwork(const FamilyNetwork&) = delete;
  FamilyNetwork& operator=(const FamilyNetwork&) = delete;

  /// Whether the host has an interface with the name of network `index`.
  static bool is_taken(std::uint32_t index);
  /// Makes the network. The host's end has the address with the last byte 1.
  Outcome<void> start();
  /// Takes a free last byte; 0: there is none.
  std::uint32_t take();
  void give_back(std::uint32_t host_part);
  Outcome<void> connect(const std::vector<Cable>& cables);
  Address address(std::uint32_t host_part) const;

 private:
  std::string interface() const;

  const Subnet subnet_;
  const std::uint32_t index_;
  Descriptor namespace_;
  std::set<std::uint32_t> taken_;
  std::uint32_t taken_last_ = 0;
  std::uint64_t cables_made_ = 0;
};

}  // namespace stdchk::fork
