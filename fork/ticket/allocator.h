#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace stdchk::fork {

/// A Placement is the clones of a ticket that one host gets.
struct Placement {
  std::string host;  ///< "": this host
  std::uint32_t count = 0;
  bool operator==(const Placement&) const = default;
};

/// A Demand is the request of a ticket.
struct Demand {
  std::uint32_t count = 0;
  std::uint64_t clone_bytes = 0;  ///< memory that each clone is charged with
  bool stays_here = false;        ///< the clones cannot go to other hosts
};

/// An Allocator decides where clones go. It is the plug-in for a cluster's manager: SnowFlock's
/// section 4 has the same three calls (request, release, what there is).
///
/// Threads: one. Errors: a sentence for people.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Reserves at most `demand.count` clones. Fewer: there is no room for more. Empty: there is room
  /// for none.
  virtual tl::expected<std::vector<Placement>, std::string> request(std::uint64_t ticket,
                                                                    const Demand& demand) = 0;
  /// Gives the ticket's clones back. An unknown ticket is no error.
  virtual void release(std::uint64_t ticket) = 0;
  /// Returns a line for each host: name, free and total slots, free and total memory.
  virtual std::string describe() const = 0;
};

}  // namespace stdchk::fork
