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
  std::uint16_t version = 3;
  std::uint16_t credits = kCredits;
  std::uint32_t fragment_bytes = kFragmentBytes;
  /// Region tables that come first; each side has its own number. None where the peer must prove
  /// itself before it is told any.
  std::uint32_t tables = 0;
  bool operator==(const Greeting&) const = default;
};
/// The peer's, when it is of this version. `bytes` may have padding behind.
std::optional<Greeting> greeting_of(ByteSpan bytes);

enum class FragmentKind : std::uint16_t {
  kMessage = 0,      ///< a part of a message
  kOnlyCredits = 1,  ///< nothing else; it is not counted as a credit
  kRegionTable = 2,
};

/// A FragmentHeader begins each fragment.
struct FragmentHeader {
  std::uint32_t message_bytes = 0;  ///< of the whole message
  std::uint16_t credits = 0;        ///< fragments that the receiver may send more
  FragmentKind kind = FragmentKind::kMessage;
};
inline constexpr std::size_t kFragmentContentMax = kFragmentBytes - sizeof(FragmentHeader);

/// A RegionTable tells the keys of a region that is registered in parts, before anyone can ask for
/// the region: RemoteKey::key is then `number` * 2^32. It is one fragment.
struct RegionTable {
  std::uint32_t number = 0;
  std::uint64_t part_bytes = 0;     ///< of each part but the last
  std::vector<std::uint32_t> keys;  ///< of the parts, in order
};
inline constexpr std::size_t kRegionPartsMax = 4000;
std::vector<std::byte> encode(const RegionTable& table);
/// kMalformed: no peer of this version says that.
Result<RegionTable> decode_region_table(ByteSpan bytes);
static_assert(4 * sizeof(std::uint32_t) + kRegionPartsMax * sizeof(std::uint32_t) <=
              kFragmentContentMax);

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
