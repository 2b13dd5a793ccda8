#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace stdchk {

/// Parses "512M", "2GiB", "64k", "1048576": a whole or decimal number and a binary unit (K, M, G,
/// T, P, optionally followed by iB or B; powers of 1024, upper or lower case). Anything else, a
/// result that is not a whole number of bytes, or one above 2^63 - 1, is kInvalidArgument.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// As parse_bytes, with an optional "/s" behind it.
Result<std::uint64_t> parse_rate(std::string_view text);
/// Parses a time: "90" or "90s", "15m", "12h", "7d"; whole numbers of seconds, at most 2^63 - 1.
Result<std::uint64_t> parse_seconds(std::string_view text);
/// Nanoseconds as seconds, for people and for what counts in base units.
inline double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
/// As parse_seconds reads it, in the largest unit that divides it.
std::string format_seconds(std::uint64_t seconds);
/// "1.5 GiB", at most four digits.
std::string format_bytes(std::uint64_t bytes);
/// The parts of a list such as "a,b"; empty ones are left out.
std::vector<std::string> split(const std::string& list, char separator);

}  // namespace stdchk
