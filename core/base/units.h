#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace stdchk {

/// Parses "512M", "2GiB", "64k", "1048576": a whole or decimal number and a binary unit. Units are
/// K, M, G, T, P, upper or lower case, optionally followed by iB or B, and are powers of 1024.
/// Fails with kInvalidArgument for anything else, a fraction of a byte, or more than 2^63 - 1.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// As parse_bytes, with an optional "/s" at the end.
Result<std::uint64_t> parse_rate(std::string_view text);
/// Parses a time such as "90", "90s", "15m", "12h" or "7d" into seconds. The number before the unit
/// is at most (2^63 - 1) / 86400.
Result<std::uint64_t> parse_seconds(std::string_view text);
/// Converts nanoseconds to seconds, for people and for metrics in base units.
inline double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
/// Returns the text that parse_seconds reads, in the largest unit without a remainder.
std::string format_seconds(std::uint64_t seconds);
/// Returns a text such as "1.5 GiB", with at most four digits.
std::string format_bytes(std::uint64_t bytes);
/// Returns the parts of a list such as "a,b", without empty parts.
std::vector<std::string> split(const std::string& list, char separator);

}  // namespace stdchk
