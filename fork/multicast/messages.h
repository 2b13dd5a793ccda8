#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "core/crypto/sealer.h"
#include "core/crypto/secret.h"
#include "core/values/ids.h"
#include "fork/multicast/units.h"

/// The messages between sender and receivers. Each message travels in one sealed datagram.
///
///     datagram: "SDM1", id of the sending process (8), number (8), sealed: kind (1), body; tag
///     (16) integers: the low byte first
///
/// The key of a datagram is derived from the group's secret and the sending process's random id.
/// The number counts its datagrams. So no key and number are used twice. Every member knows the
/// group's secret and can pose as another member. So receivers check each unit before they use it.
/// The root digest for the check does not come from the group.
namespace stdchk::multicast {

inline constexpr std::size_t kHeaderBytes = 20;
inline constexpr std::size_t kDatagramBytesMax = kHeaderBytes + 1 + 8 + kUnitBytes + 16;
/// A message of a cell beside its bytes: header, kind, unit, cell, tag.
inline constexpr std::size_t kCellOverhead = kHeaderBytes + 1 + 8 + Sealer::kTagBytes;

/// A receiver says that it is there.
struct Hello {};

/// The sender's answer: the image that it sends.
struct Offer {
  std::uint64_t to = 0;  ///< the receiver's id: the answer is not an old one
  std::uint64_t image_bytes = 0;
  std::uint32_t units = 0;     ///< of the manifest and of the image
  std::uint32_t cells = 0;     ///< of each unit
  std::uint32_t position = 0;  ///< where the receivers are
  std::uint32_t group = 0;     ///< IPv4 address of the multicast group, in host order
  std::uint16_t port = 0;      ///< of the group
};

/// The sender sends probes to the group, so that receivers see whether it reaches them. A relay
/// sends probes to each receiver that it serves: it lives, though it may wait for units itself.
struct Probe {};

/// An Ask for the sender whose id is `to`.
struct AskMessage {
  std::uint64_t to = 0;
  Ask ask;
};

struct Cell {
  std::uint32_t unit = 0;
  std::uint32_t cell = 0;
  ByteSpan bytes;  ///< lies in the datagram's plain text
};

/// A receiver asks the sender whose id is `to` for its place in the RelayTree.
struct Join {
  std::uint64_t to = 0;
  std::uint64_t avoid = 0;  ///< the relay that is silent; 0: none
  bool by_unicast = false;  ///< multicast does not reach this receiver
  bool relays = false;      ///< it can pass units on
};

/// The sender's answer: who serves the receiver.
struct Place {
  std::uint64_t to = 0;     ///< the receiver's id
  std::uint64_t relay = 0;  ///< id of the relay; 0: the sender itself
  std::uint32_t host = 0;   ///< IPv4 address of the relay, in host order
  std::uint16_t port = 0;
};

using Message = std::variant<Hello, Offer, Probe, AskMessage, Cell, Join, Place>;

/// An Opened is a message and the id of its sender.
struct Opened {
  std::uint64_t from = 0;
  std::uint64_t number = 0;
  Message message;
};

/// A Datagrams seals and opens the datagrams of one process.
///
/// Owns: the keys of up to kPeersMax peers.
/// Threads: one.
/// Errors: kCorrupt: not sealed by a member of the group. kMalformed: sealed, and not a message.
class Datagrams {
 public:
  static constexpr std::size_t kPeersMax = 1024;

  explicit Datagrams(const Secret& group);
  std::uint64_t id() const { return id_; }

  /// The result is valid until the next call.
  ByteSpan seal(const Message& message);
  /// The result's bytes are valid until the next call.
  Result<Opened> open(ByteSpan datagram);

 private:
  Sealer* sealer_of(std::uint64_t id);

  const Secret group_;
  std::uint64_t id_ = 0;
  std::uint64_t number_ = 0;
  Sealer own_;
  std::map<std::uint64_t, std::unique_ptr<Sealer>> peers_;
  std::vector<std::byte> out_;
  std::vector<std::byte> plain_;
};

}  // namespace stdchk::multicast
