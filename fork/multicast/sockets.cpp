#include "fork/multicast/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace stdchk::multicast {
namespace {

constexpr int kBufferBytes = 16 << 20;
constexpr std::size_t kIpUdpBytes = 28;
constexpr std::size_t kEthernetBytes = 1500;

sockaddr_in raw(const Address& address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(address.host);
  out.sin_port = htons(address.port);
  return out;
}

Address address_of(const sockaddr_in& from) {
  return {ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)};
}

template <class T>
bool set(int fd, int level, int option, const T& value) {
  return ::setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

/// Makes the buffer as large as the system allows. A privileged process may pass the usual limit.
void enlarge(int fd, int forced, int usual) {
  if (!set(fd, SOL_SOCKET, forced, kBufferBytes)) set(fd, SOL_SOCKET, usual, kBufferBytes);
}

Result<Descriptor> bound(const Address& at) {
  Descriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("multicast.socket");
  const int yes = 1;
  if (is_multicast(at) && !set(fd.get(), SOL_SOCKET, SO_REUSEADDR, yes)) {
    return fail_errno("multicast.socket");
  }
  enlarge(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  enlarge(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
  const sockaddr_in address = raw(at);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_errno("multicast.bind");
  }
  return fd;
}

}  // namespace

std::optional<Address> parse_address(const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  in_addr host{};
  Address address;
  if (::inet_pton(AF_INET, text.substr(0, colon).c_str(), &host) != 1) return std::nullopt;
  address.host = ntohl(host.s_addr);
  if (colon == text.size()) return address;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, address.port);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return address;
}

std::string address_text(const Address& address) {
  return fmt::format("{}.{}.{}.{}:{}", address.host >> 24U, address.host >> 16U & 255U,
                     address.host >> 8U & 255U, address.host & 255U, address.port);
}

bool is_multicast(const Address& address) { return address.host >> 28U == 14; }

Result<Socket> Socket::open(const Address& own, std::uint8_t hops) {
  STDCHK_ASSIGN(Descriptor fd, bound(own));
  const in_addr interface { htonl(own.host) };
  const int ttl = hops;
  if (!set(fd.get(), IPPROTO_IP, IP_MULTICAST_IF, interface) ||
      !set(fd.get(), IPPROTO_IP, IP_MULTICAST_TTL, ttl)) {
    return fail_errno("multicast.interface");
  }
  return Socket(std::move(fd));
}

Result<Socket> Socket::join(const Address& group, const Address& own) {
  if (!is_multicast(group)) return fail(Code::kInvalidArgument, "multicast.join");
  STDCHK_ASSIGN(Descriptor fd, bound(group));
  const ip_mreq membership{{htonl(group.host)}, {htonl(own.host)}};
  if (!set(fd.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, membership)) {
    return fail_errno("multicast.join");
  }
  return Socket(std::move(fd));
}

Result<Address> Socket::own() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return fail_errno("multicast.own");
  }
  return address_of(address);
}

Status Socket::send(ByteSpan bytes, const Address& to) {
  const sockaddr_in address = raw(to);
  const ssize_t sent = ::sendto(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (sent == static_cast<ssize_t>(bytes.size())) return {};
  if (errno == EAGAIN || errno == ENOBUFS) return fail(Code::kWouldBlock, "multicast.send");
  return fail_errno("multicast.send");
}

std::optional<std::size_t> Socket::receive(MutableByteSpan room, Address& from) {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  for (;;) {
    const ssize_t got = ::recvfrom(fd_.get(), room.data(), room.size(), 0,
                                   reinterpret_cast<sockaddr*>(&address), &length);
    if (got >= 0) {
      from = address_of(address);
      return static_cast<std::size_t>(got);
    }
    // An ICMP error of an earlier datagram is no end.
    if (errno != EINTR && errno != ECONNREFUSED) return std::nullopt;
  }
}

std::size_t datagram_bytes_of(const Address& own) {
  std::size_t bytes = kEthernetBytes;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return bytes - kIpUdpBytes;
  const Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address{};
    std::memcpy(&address, each->ifa_addr, sizeof(address));
    if (address_of(address).host != own.host) continue;
    ifreq request{};
    std::strncpy(request.ifr_name, each->ifa_name, IFNAMSIZ - 1);
    if (::ioctl(any.get(), SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 576) {
      bytes = static_cast<std::size_t>(request.ifr_mtu);
    }
  }
  ::freeifaddrs(all);
  return bytes - kIpUdpBytes;
}

}  // namespace stdchk::multicast
