#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/receiver.h"
#include "fork/multicast/sender.h"
#include "fork/multicast/sockets.h"

/// An image to many hosts at once, over sockets.
namespace stdchk::multicast {

/// Made of a secret of the pool, for all members of one group.
Secret group_secret(const Secret& from);

/// The number of cells of a unit, so that a datagram goes through the interface in one piece.
std::uint32_t cells_for(std::size_t datagram_bytes);

inline constexpr Duration kGatherTime = std::chrono::seconds(2);
inline constexpr Duration kLaggardsTime = std::chrono::seconds(1);

struct SendOptions {
  Secret group;
  Address own;  ///< where receivers ask
  Address to;   ///< the multicast group
  std::uint8_t hops = 1;
  double rate_start = 64e6;  ///< bytes a second
  double rate_most = 12e9;
  /// Begins when so many receivers ask, or kGatherTime after the first: those that come later need
  /// the beginning once more.
  std::uint32_t expected = 1;
  Duration idle = std::chrono::seconds(10);  ///< longest time without receivers
  /// Receivers that lag get what they lack elsewhere: ends before all are complete. The others have
  /// as long as half of the receivers needed, and kLaggardsTime at least.
  bool leaves_laggards = false;
  /// Ends at once when it returns true; asked in each turn. With it, waits for all expected
  /// receivers to come.
  std::function<bool()> is_over;
  std::function<Status(std::uint64_t offset, MutableByteSpan out)> read;
  std::function<void(const Address&)> on_ready;
};

struct SendReport {
  Sender::Counts counts;
  std::size_t complete = 0;  ///< receivers that got everything
  /// Time from the first cell to the last receiver's report of completion.
  Duration took{};
};

/// Sends until all receivers are complete, and one second more for late receivers. Ends after
/// `idle` without receivers.
Result<SendReport> send(const SendOptions& options, const Manifest& manifest, Clock& clock);

/// The longest image that a receiver accepts without another limit: 128 MiB of digests.
inline constexpr std::uint64_t kImageBytesMax = std::uint64_t{64} << 30U;

/// SourceOptions say which image this host wants, and of which sender.
struct SourceOptions {
  Secret group;
  Address from;    ///< the sender
  Address own;     ///< of the interface; port 0
  ChunkName root;  ///< of the manifest, by which every byte is checked
  /// An offer of a longer image is refused. Digests are 1/512 of the image, and a receiver keeps
  /// them in memory before it can verify their root.
  std::uint64_t image_bytes_max = kImageBytesMax;
  Duration patience = std::chrono::seconds(10);  ///< without a cell that this host needs
  bool by_unicast = false;                       ///< does not join the group
};

struct ReceiveOptions : SourceOptions {
  std::uint32_t lose_permille = 0;  ///< of the datagrams, for tests
  /// Takes the length, which the root has proven, before write() takes any byte.
  std::function<Status(std::uint64_t image_bytes)> begin;
  /// Takes checked bytes.
  std::function<Status(std::uint64_t offset, ByteSpan bytes)> write;
  /// Reads bytes that write() took. With it, this host passes units on to hosts that multicast does
  /// not reach, and receive() returns when they have the image or are gone.
  std::function<Status(std::uint64_t offset, MutableByteSpan out)> read;
};

struct ReceiveReport {
  Receiver::Counts counts;
  std::uint64_t image_bytes = 0;
  bool by_unicast = false;
  bool by_relay = false;            ///< a relay has sent the last units
  std::uint64_t relayed_cells = 0;  ///< that this host has passed on
};

/// Receives a whole image.
/// Errors: kDeadline when no cell comes. kCorrupt when a member of the group sends a
/// manifest with another root. Fails with kTooLarge when the offered image is longer than
/// `image_bytes_max`.
Result<ReceiveReport> receive(const ReceiveOptions& options, Clock& clock);

}  // namespace stdchk::multicast
