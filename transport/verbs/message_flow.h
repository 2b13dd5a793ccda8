#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/base/limits.h"
#include "core/base/result.h"
#include "core/values/types.h"
#include "transport/verbs/fragment.h"

namespace stdchk::transport::verbs {

/// A MessageFlow carries the messages of one connection as fragments, in both directions.
///
/// Each side sends a fragment only when it has a credit of the other side, because a receive buffer
/// must wait for the fragment. Fragments bring credits back.
///
/// | credits of              | taken by         | come back by                   |
/// |-------------------------|------------------|--------------------------------|
/// | the peer, for our sends | header_for()     | take() of the peer's fragments |
/// | this side, for the peer | take()           | header_for()                   |
///
/// Owns: copies of waiting messages. Needs no device.
/// Errors: kMalformed for fragments that no peer of this version sends.
/// Limits: kWaitingMax messages of kWaitingBytesMax bytes together wait; tables come on top.
class MessageFlow {
 public:
  static constexpr std::size_t kWaitingMax = 128;
  static constexpr std::size_t kWaitingBytesMax = 4 * limits::kMiB;

  /// A Fragment is a part of a waiting message.
  struct Fragment {
    ByteSpan content;
    std::uint32_t message_bytes = 0;
    FragmentKind kind = FragmentKind::kMessage;
  };

  explicit MessageFlow(std::size_t message_bytes_max) : assembler_(message_bytes_max) {}

  // Sending.
  bool has_credit() const { return credits_ > 0; }
  bool has_waiting() const { return !waiting_.empty(); }
  bool has_room(std::size_t bytes) const {
    return waiting_.size() < kWaitingMax && waiting_bytes_ + bytes <= kWaitingBytesMax;
  }
  void add(std::vector<std::byte> bytes, FragmentKind kind);
  /// Returns the first fragment that waits. There must be one.
  Fragment first() const;
  /// The first waiting fragment, whose content has `bytes`, was sent.
  void drop_first(std::size_t bytes);
  /// Returns the header of a fragment that is sent now. It takes a credit, and returns credits.
  FragmentHeader header_for(std::uint32_t message_bytes, FragmentKind kind);

  // Receiving.
  /// Counts the credits of a fragment that has come.
  Status take(const FragmentHeader& header);
  /// True when a fragment should be sent only because it returns credits.
  bool must_return_credits() const { return credits_to_return_ >= kCredits / 2; }
  /// See Assembler.
  Result<std::optional<ByteSpan>> join(const FragmentHeader& header, ByteSpan content) {
    return assembler_.add(header, content);
  }

 private:
  struct Waiting {
    std::vector<std::byte> bytes;
    FragmentKind kind = FragmentKind::kMessage;
    std::size_t sent = 0;
  };

  std::deque<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint16_t credits_ = kCredits;     ///< fragments that the peer has room for
  std::uint16_t credits_to_return_ = 0;  ///< of received fragments
  std::uint16_t peer_may_send_ = kCredits;
  Assembler assembler_;
};

}  // namespace stdchk::transport::verbs
