#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/sender.h"
#include "fork/multicast/sockets.h"

namespace stdchk::multicast {

/// A Serving answers the asks that come to one socket: it sends the cells that its Sender chooses.
///
/// Owns: the Sender, the receivers' addresses. Not: socket and keys.
/// Limits: Sender::kReceiversMax receivers. A new one takes the place of the one that is silent for
///   the longest time and that the Sender has forgotten.
class Serving {
 public:
  struct Options {
    SenderOptions sender;
    /// Without a group, all receivers are served by unicast.
    std::optional<Address> group;
    /// Reads a whole unit of the manifest or the image, filled up with zeros.
    std::function<Status(std::uint32_t unit, MutableByteSpan out)> read;
  };

  Serving(Options options, Socket& socket, Datagrams& datagrams);

  /// Takes an ask. Returns false for a recorded ask, and for one to another sender.
  bool take(Time now, const Opened& opened, const AskMessage& asked, const Address& from);
  /// Sends a number of cells that wait, as far as the rate allows.
  Status speak(Clock& clock);
  /// Shows each receiver that this process lives, each 200 ms. For receivers without a group.
  void probe_each(Time now);

  Sender& sender() { return sender_; }
  std::size_t peers() const { return peers_.size(); }

 private:
  struct Peer {
    Address address;
    std::uint64_t number = 0;  ///< of its last ask
    Time heard{};
    bool warned = false;  ///< that it cannot be reached
  };

  Result<ByteSpan> bytes_of(std::uint32_t unit, std::uint32_t cell);

  const Options options_;
  Socket& socket_;
  Datagrams& datagrams_;
  const std::size_t cell_bytes_;
  Sender sender_;
  std::map<std::uint64_t, Peer> peers_;
  std::vector<std::byte> unit_bytes_;  ///< of unit_
  std::uint32_t unit_ = 0;
  Time probed_{};
  bool warned_ = false;  ///< that the group cannot be reached
};

/// Removes the entry that was heard of longest ago and is not `kept`. Returns false if there is none.
/// Entries stay until then: they have the numbers by which recorded datagrams are known.
template <class Entries, class IsKept>
bool remove_oldest(Entries& entries, IsKept is_kept) {
  auto oldest = entries.end();
  for (auto each = entries.begin(); each != entries.end(); ++each) {
    if (is_kept(each->first)) continue;
    if (oldest == entries.end() || each->second.heard < oldest->second.heard) oldest = each;
  }
  if (oldest == entries.end()) return false;
  entries.erase(oldest);
  return true;
}

/// Reads a unit of the manifest, or of the image by `read`. Fills it up with zeros.
Status read_unit(const Manifest& manifest,
                 const std::function<Status(std::uint64_t offset, MutableByteSpan out)>& read,
                 std::uint32_t unit, MutableByteSpan out);

}  // namespace stdchk::multicast
