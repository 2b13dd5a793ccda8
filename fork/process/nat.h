#pragma once

#include <string>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "fork/process/family_network.h"

namespace stdchk::fork {

/// Returns the rules of nft(8) by which clones reach the outside under this host's addresses. The
/// families do not reach each other, and nobody outside begins a connection to a clone. Packets with
/// a clone's address that come from elsewhere are dropped. With `forwards_only_clones`, this host
/// forwards nothing else, as before it forwarded.
std::string nat_rules(const Subnet& subnet, bool forwards_only_clones);

/// A Nat lets clones reach the outside, as long as this object lives. It also lets this host forward
/// packets (net.ipv4.ip_forward).
///
/// Owns: a process that undoes both when this object or this process ends, whatever ends it.
/// Errors: a sentence. Limits: one on each host; a second one is refused after 5 s.
class Nat {
 public:
  static Outcome<Nat> start(const Subnet& subnet);
  /// Returns a Nat that does nothing.
  static Nat none() { return Nat(Descriptor()); }

 private:
  explicit Nat(Descriptor life) : life_(std::move(life)) {}
  Descriptor life_;  ///< the process reads its end
};

}  // namespace stdchk::fork
