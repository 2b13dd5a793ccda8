#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <unordered_map>

namespace stdchk::transport::tcp {

/// An Arrivals counts the connections that have not proven anything, and says which of them gives
/// way to one more.
///
/// Limits: `max` connections together, `of_address_max` from one address. The oldest of the address
///   gives way; when there are too many together, the oldest of the address that has most.
/// Not: of any effect on connections that have proven themselves.
class Arrivals {
 public:
  /// An IPv4 address, or the network of an IPv6 address: a host has all of its last 64 bits.
  using Address = std::array<std::uint8_t, 8>;
  static Address address_of(const sockaddr_storage& peer);

  Arrivals(std::size_t max, std::size_t of_address_max)
      : max_(max), of_address_max_(of_address_max) {}

  /// Counts connection `number`. The one that is answered has been forgotten, and must be closed.
  std::optional<std::uint64_t> admit(std::uint64_t number, const Address& address);
  /// The connection has proven itself, or has ended. No error when it is not known.
  void leave(std::uint64_t number);
  /// The oldest of all, which is forgotten.
  std::optional<std::uint64_t> take_oldest();
  std::size_t size() const { return addresses_.size(); }

 private:
  using Numbers = std::list<std::uint64_t>;
  std::uint64_t take_oldest_of(const Address& address);

  const std::size_t max_;
  const std::size_t of_address_max_;
  std::map<Address, Numbers> by_address_;  ///< the oldest first
  std::unordered_map<std::uint64_t, Address> addresses_;
};

}  // namespace stdchk::transport::tcp
