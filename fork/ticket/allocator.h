#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/problem.h"

namespace stdchk::fork {

/// A Placement is a host, and the number of a ticket's clones that go to it.
struct Placement {
  std::string host;  ///< "": this host
  std::uint32_t count = 0;
  bool operator==(const Placement&) const = default;
};

/// A Demand is the request of a ticket.
struct Demand {
  std::uint32_t count = 0;
  std::uint64_t clone_bytes = 0;  ///< memory to reserve for each clone
  bool stays_here = false;        ///< the clones cannot go to other hosts
};

/// An Allocator decides where clones go. It is the plug-in for a cluster's manager: SnowFlock's
/// section 4 has the same three calls (request, release, describe).
///
/// Threads: one. Errors: a sentence for people.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Reserves at most `demand.count` clones, and fewer if there is no room for more. Returns
  /// an empty list without any room.
  virtual Outcome<std::vector<Placement>> request(std::uint64_t ticket, const Demand& demand) = 0;
  /// Gives the ticket's clones back. An unknown ticket is no error.
  virtual void release(std::uint64_t ticket) = 0;
  /// Returns a line for each host: name, free and total slots, free and total memory.
  virtual std::string describe() const = 0;
};

}  // namespace stdchk::fork
