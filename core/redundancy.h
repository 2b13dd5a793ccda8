#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk {

/// A Redundancy says what is stored of a chunk beyond its bytes: further copies, or its part in the
/// parity of a stripe.
///
/// Its number is the copies, or, with parity, data * 65536 + parity * 256 + 1: that is what stands
/// in messages, in the journal and as the value of the policy `copies`, so that plain copies are
/// what they were before there was parity.
struct Redundancy {
  std::uint32_t copies = 1;
  std::uint32_t data = 0;    ///< chunks of a stripe; 0: no parity
  std::uint32_t parity = 0;  ///< parity blocks of a stripe

  bool has_parity() const { return parity > 0; }
  /// So many benefactors may be lost, and the bytes are still there.
  std::uint32_t losses() const { return has_parity() ? parity : copies - 1; }
  /// Blocks that must be apart from each other.
  std::uint32_t width() const { return has_parity() ? data + parity : copies; }
  std::uint32_t number() const { return has_parity() ? data << 16 | parity << 8 | 1 : copies; }
  bool operator==(const Redundancy&) const = default;
};

/// 0 is one copy. nullopt: the number stands for nothing, or for more than the limits allow.
std::optional<Redundancy> redundancy_of(std::uint64_t number);
/// As parse_redundancy() reads it: "2", "ec(4,1)".
std::string redundancy_text(const Redundancy& redundancy);
inline std::string redundancy_text(std::uint64_t number) {
  return redundancy_text(redundancy_of(number).value_or(Redundancy{}));
}
/// "3": copies; "ec(4,2)": two parity blocks for four chunks. nullopt: neither.
std::optional<Redundancy> parse_redundancy(std::string_view text);
/// What may stand there beside a number, for people.
inline constexpr std::string_view kParityAllowed = "ec(k,m) with k from 2 to 16 and m from 1 to 4";
/// True when `a` outlives more losses than `b`, or as many and is read faster after one: copies
/// before parity, short stripes before long ones.
bool is_stronger(const Redundancy& a, const Redundancy& b);

}  // namespace stdchk
