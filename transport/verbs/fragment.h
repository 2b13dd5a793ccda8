#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/types.h"

/// What two endpoints say to each other below messages. Numbers are little-endian, as x86-64 and
/// the other machines of the project have them; a peer of another kind is refused by the greeting.
namespace stdchk::transport::verbs {

inline constexpr std::size_t kFragmentBytes = 16384;  ///< of a receive buffer
/// Messages that a peer may have under way to one link: each has a receive buffer that waits.
inline constexpr std::uint16_t kCredits = 8;
/// Credits are given back when half are owed, so that at most two fragments which carry nothing
/// but credits are under way to a peer that does not look.
inline constexpr std::uint16_t kBuffersPerLink = kCredits + 2;

/// A Greeting is the private data of a connection request and of its answer.
struct Greeting {
  std::uint32_t magic = 0x6B685453;
  std::uint16_t version = 1;
  std::uint16_t credits = kCredits;
  std::uint32_t fragment_bytes = kFragmentBytes;
  bool operator==(const Greeting&) const = default;
};
/// Both sides must be equal. `bytes` may have padding behind.
bool greets(ByteSpan bytes);

/// A FragmentHeader begins each fragment of a message.
struct FragmentHeader {
  std::uint32_t message_bytes = 0;  ///< of the whole message
  std::uint16_t credits = 0;        ///< fragments that the receiver may send more
  std::uint16_t only_credits = 0;   ///< 1: no part of a message, and not counted as a credit
};
inline constexpr std::size_t kFragmentContentMax = kFragmentBytes - sizeof(FragmentHeader);

/// An Assembler makes messages of fragments that arrive in order.
///
/// Errors: kMalformed for what no peer of this version sends.
class Assembler {
 public:
  explicit Assembler(std::size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}
  /// The whole message, when this fragment ends one: valid until the next call, and as long as
  /// `content`.
  Result<std::optional<ByteSpan>> add(const FragmentHeader& header, ByteSpan content);

 private:
  std::size_t message_bytes_max_;
  bool within_ = false;
  std::vector<std::byte> message_;
};

}  // namespace stdchk::transport::verbs
