#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/sockets.h"

namespace stdchk::multicast {

/// A Meeting connects a receiver to a sender. It has the sender's offer, the manifest that the
/// receiver fills, and the sockets for unicast and for the group.
///
/// Threads: one at a time.
/// Errors: kDeadline: no sender answers. kTooLarge: the image is longer than the receiver takes.
class Meeting {
 public:
  /// Takes a datagram of a member of the group.
  using Take = std::function<Status(const Opened& opened, const Address& from, std::size_t bytes)>;

  Meeting(const SourceOptions& options, Socket socket, Clock& clock)
      : options_(options), clock_(clock), socket_(std::move(socket)), datagrams_(options.group) {}

  /// Says hello until the offer comes. Then joins the group, and waits for a probe.
  Status meet();

  Socket& socket() { return socket_; }
  Datagrams& datagrams() { return datagrams_; }
  std::uint64_t sender() const { return sender_; }
  const Address& sender_address() const { return options_.from; }
  const Offer& offer() const { return offer_; }
  Manifest& manifest() { return *manifest_; }
  /// Multicast does not reach this host.
  bool by_unicast() const { return by_unicast_; }

  void send(const Message& message, const Address& to);
  /// Calls `take` for each datagram that has come, up to a limit.
  Status receive(const Take& take);
  /// Waits until a datagram comes, or `wake` is readable; until `until`, at most 100 ms.
  void wait(Time until, int wake = -1);

 private:
  Status wait_for_offer();
  Status take_offer(const Offer& offer, std::uint64_t sender);
  void try_group();

  const SourceOptions options_;
  Clock& clock_;
  Socket socket_;
  std::optional<Socket> group_;
  Datagrams datagrams_;
  std::uint64_t sender_ = 0;
  Offer offer_;
  std::optional<Manifest> manifest_;
  bool by_unicast_ = true;
  std::array<std::byte, kDatagramBytesMax> room_{};
};

}  // namespace stdchk::multicast
