#include "transport/tcp/arrivals.h"

#include <algorithm>
#include <cstring>

namespace stdchk::transport::tcp {
namespace {

constexpr std::size_t kMappedAt = 12;  // of the IPv4 address within an IPv6 address that holds one

}  // namespace

Arrivals::Address Arrivals::address_of(const sockaddr_storage& peer) {
  Address address{};
  if (peer.ss_family == AF_INET6) {
    const in6_addr& in6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&in6)) {
      std::memcpy(address.data(), in6.s6_addr + kMappedAt, sizeof(in_addr));
    } else {
      std::memcpy(address.data(), in6.s6_addr, address.size());
    }
  } else {
    const in_addr& in = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    std::memcpy(address.data(), &in, sizeof in);
  }
  return address;
}

std::optional<std::uint64_t> Arrivals::admit(std::uint64_t number, const Address& address) {
  std::optional<std::uint64_t> gone;
  if (by_address_[address].size() >= of_address_max_) {
    gone = take_oldest_of(address);
  } else if (addresses_.size() >= max_) {
    const auto most = std::ranges::max_element(by_address_, {},
                                               [](const auto& each) { return each.second.size(); });
    gone = take_oldest_of(most->first);
  }
  by_address_[address].push_back(number);
  addresses_.emplace(number, address);
  return gone;
}

std::uint64_t Arrivals::take_oldest_of(const Address& address) {
  const std::uint64_t oldest = by_address_.at(address).front();
  leave(oldest);
  return oldest;
}

void Arrivals::leave(std::uint64_t number) {
  const auto found = addresses_.find(number);
  if (found == addresses_.end()) return;
  const auto numbers = by_address_.find(found->second);
  numbers->second.remove(number);
  if (numbers->second.empty()) by_address_.erase(numbers);
  addresses_.erase(found);
}

std::optional<std::uint64_t> Arrivals::take_oldest() {
  if (addresses_.empty()) return std::nullopt;
  const auto oldest = std::ranges::min_element(
      addresses_, {}, [](const auto& each) { return each.first; });  // numbers only grow
  const std::uint64_t number = oldest->first;
  leave(number);
  return number;
}

}  // namespace stdchk::transport::tcp
