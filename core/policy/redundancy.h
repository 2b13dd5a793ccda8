#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk {

/// A Redundancy is the number of a chunk's copies, or the shape of its stripe: data chunks and
/// parity blocks.
///
/// Its number is the copies, or with parity data * 65536 + parity * 256 + 1. Messages, the journal
/// and the policy `copies` contain this number. So plain copies keep the encoding from before
/// parity existed.
struct Redundancy {
  std::uint32_t copies = 1;
  std::uint32_t data = 0;    ///< data chunks of a stripe; 0: no parity
  std::uint32_t parity = 0;  ///< parity blocks of a stripe

  bool has_parity() const { return parity > 0; }
  /// The number of benefactors that may be lost without loss of bytes.
  std::uint32_t losses() const { return has_parity() ? parity : copies - 1; }
  /// The number of blocks that must be in different failure domains.
  std::uint32_t width() const { return has_parity() ? data + parity : copies; }
  std::uint32_t number() const { return has_parity() ? data << 16 | parity << 8 | 1 : copies; }
  bool operator==(const Redundancy&) const = default;
};

/// Decodes a number; 0 is one copy. Returns nullopt when it is not valid, or above the limits.
std::optional<Redundancy> redundancy_of(std::uint64_t number);
/// Returns the text that parse_redundancy() reads, such as "2" or "ec(4,1)".
std::string redundancy_text(const Redundancy& redundancy);
inline std::string redundancy_text(std::uint64_t number) {
  return redundancy_text(redundancy_of(number).value_or(Redundancy{}));
}
/// Parses "3", which means copies, or "ec(4,2)", two parity blocks for four
/// chunks. nullopt: neither.
std::optional<Redundancy> parse_redundancy(std::string_view text);
/// The allowed values besides numbers, for people.
inline constexpr std::string_view kParityAllowed = "ec(k,m) with k from 2 to 16 and m from 1 to 4";
/// Returns true when `a` survives more losses than `b`. With equal losses, copies are stronger than
/// parity, and short stripes than long ones, because reads after a loss are faster.
bool is_stronger(const Redundancy& a, const Redundancy& b);

}  // namespace stdchk
