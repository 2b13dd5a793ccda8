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

/// An Arrivals counts the connections without a proof, and chooses the connections to close when
/// there are too many.
///
/// Limits: `max` connections together, `of_address_max` from one address. Beyond the limit of an
///   address, its oldest connection must be closed. Beyond `max`, it is the oldest connection of
///   the address with most connections.
/// Not: the connections of proven peers.
class Arrivals {
 public:
  /// An IPv4 address, or the first 64 bits of an IPv6 address, because a host may use any last 64
  /// bits.
  using Address = std::array<std::uint8_t, 8>;
  static Address address_of(const sockaddr_storage& peer);

  Arrivals(std::size_t max, std::size_t of_address_max)
      : max_(max), of_address_max_(of_address_max) {}

  /// Counts connection `number`. If this exceeds a limit, forgets another connection and returns
  /// its number. The caller must close it.
  std::optional<std::uint64_t> admit(std::uint64_t number, const Address& address);
  /// Forgets a connection whose peer is proven, or which has ended. Ignores unknown numbers.
  void leave(std::uint64_t number);
  /// Forgets the oldest connection of all addresses, and returns its number.
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
