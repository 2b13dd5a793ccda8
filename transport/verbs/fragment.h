#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

/// The protocol between two endpoints, below messages. Numbers are little-endian, as on x86-64 and
/// the project's other machines. The greeting refuses a peer with another byte order.
namespace stdchk::transport::verbs {

inline constexpr std::size_t kFragmentBytes = 16384;  ///< length of a receive buffer
/// Fragments that a peer may have under way to one link. A receive buffer waits for each of them.
inline constexpr std::uint16_t kCredits = 8;
/// Credits go back when half of them are owed. So a peer that does not poll gets at most two
/// fragments that carry only credits.
inline constexpr std::uint16_t kBuffersPerLink = kCredits + 2;

/// A Greeting is the private data of a connection request and of its answer.
struct Greeting {
  std::uint32_t magic = 0x6B685453;
  std::uint16_t version = 3;
  std::uint16_t credits = kCredits;
  std::uint32_t fragment_bytes = kFragmentBytes;
  /// Number of region tables that this side sends first. 0 when the peer must first prove its
  /// identity.
  std::uint32_t tables = 0;
  bool operator==(const Greeting&) const = default;
};
/// Returns the peer's greeting if it has this version. `bytes` may end with padding.
std::optional<Greeting> greeting_of(ByteSpan bytes);

enum class FragmentKind : std::uint16_t {
  kMessage = 0,      ///< part of a message
  kOnlyCredits = 1,  ///< no content; it costs no credit
  kRegionTable = 2,
};

/// Each fragment begins with a FragmentHeader.
struct FragmentHeader {
  std::uint32_t message_bytes = 0;  ///< length of the whole message
  std::uint16_t credits = 0;        ///< more fragments that the receiver may send
  FragmentKind kind = FragmentKind::kMessage;
};
inline constexpr std::size_t kFragmentContentMax = kFragmentBytes - sizeof(FragmentHeader);

/// A RegionTable has the keys of a region that is registered in parts. A single fragment carries
/// it, before anyone can ask for the region. The region's RemoteKey::key is `number` * 2^32.
struct RegionTable {
  std::uint32_t number = 0;
  std::uint64_t part_bytes = 0;     ///< length of each part but the last
  std::vector<std::uint32_t> keys;  ///< one for each part, in order
};
inline constexpr std::size_t kRegionPartsMax = 4000;
std::vector<std::byte> encode(const RegionTable& table);
/// kMalformed: no peer of this version sends such a table.
Result<RegionTable> decode_region_table(ByteSpan bytes);
static_assert(4 * sizeof(std::uint32_t) + kRegionPartsMax * sizeof(std::uint32_t) <=
              kFragmentContentMax);

/// An Assembler makes messages of fragments that arrive in order.
///
/// Errors: kMalformed for fragments that no peer of this version sends.
class Assembler {
 public:
  explicit Assembler(std::size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}
  /// Returns the whole message if this fragment ends one. The result is valid until the next call,
  /// and as long as `content`.
  Result<std::optional<ByteSpan>> add(const FragmentHeader& header, ByteSpan content);

 private:
  std::size_t message_bytes_max_;
  bool within_ = false;
  std::vector<std::byte> message_;
};

}  // namespace stdchk::transport::verbs
