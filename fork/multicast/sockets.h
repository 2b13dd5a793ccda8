#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/descriptor.h"
#include "core/base/result.h"
#include "core/values/ids.h"

/// UDP sockets of sender and receivers, over IPv4.
namespace stdchk::multicast {

/// An Address is an IPv4 address and a port, in host order.
struct Address {
  std::uint32_t host = 0;
  std::uint16_t port = 0;
  bool operator==(const Address&) const = default;
};
/// Reads "10.0.0.1:7100" or "10.0.0.1", which means port 0.
std::optional<Address> parse_address(const std::string& text);
std::string address_text(const Address& address);
/// 224.0.0.0/4.
bool is_multicast(const Address& address);

/// A Datagram socket sends and receives without waiting. Threads: one at a time.
class Socket {
 public:
  /// For unicast, and for sending to groups from that interface, over up to `hops` routers.
  static Result<Socket> open(const Address& own, std::uint8_t hops);
  /// Receives datagrams to the group on the interface that has the address `own`.
  static Result<Socket> join(const Address& group, const Address& own);

  int fd() const { return fd_.get(); }
  Result<Address> own() const;
  /// kWouldBlock: the queue is full; kSystem: the datagram is lost.
  Status send(ByteSpan bytes, const Address& to);
  /// Nothing: no datagram is there. A longer one than `room` is cut.
  std::optional<std::size_t> receive(MutableByteSpan room, Address& from);

 private:
  explicit Socket(Descriptor fd) : fd_(std::move(fd)) {}
  Descriptor fd_;
};

/// The longest datagram that goes through the interface with that address in one piece.
std::size_t datagram_bytes_of(const Address& own);

}  // namespace stdchk::multicast
