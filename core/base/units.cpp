#include "core/base/units.h"

#include <array>
#include <cstdio>
#include <limits>
#include <sstream>
#include <utility>

namespace stdchk {
namespace {

constexpr std::uint64_t kBytesMax = std::numeric_limits<std::int64_t>::max();

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Removes the digits at the front of `text` and returns them.
std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

/// Returns the power of two of a unit; -1 for an unknown unit.
int unit_shift(std::string_view unit) {
  if (unit.empty()) return 0;
  const char letter = unit[0] >= 'a' && unit[0] <= 'z' ? static_cast<char>(unit[0] - 32) : unit[0];
  if (letter == 'B') return unit.size() == 1 ? 0 : -1;
  const std::size_t power = std::string_view("KMGTP").find(letter);
  if (power == std::string_view::npos) return -1;
  const std::string_view rest = unit.substr(1);
  const bool valid =
      rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "IB" || rest == "ib";
  return valid ? static_cast<int>(10 * (power + 1)) : -1;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr const char* kWhere = "size";
  const std::string_view whole = take_digits(text);
  std::string_view fraction;
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    fraction = take_digits(text);
    if (fraction.empty()) return fail(Code::kInvalidArgument, kWhere);
  }
  const int shift = unit_shift(text);
  // More digits cannot give a whole number of bytes, or would overflow the arithmetic below.
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (whole.empty() || shift < 0 || fraction.size() > 17) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  __extension__ using Wide = unsigned __int128;
  Wide value = 0;
  for (const char digit : whole) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value > kBytesMax) return fail(Code::kInvalidArgument, kWhere);
  }
  Wide scale = 1;
  for (const char digit : fraction) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    scale *= 10;
  }
  // `value` < 2^63 * 10^17 < 2^120: to avoid overflow, each step divides the scale if possible.
  for (int i = 0; i < shift; ++i) {
    if (scale % 2 == 0) {
      scale /= 2;
    } else {
      value *= 2;
      if (value / scale > kBytesMax) return fail(Code::kInvalidArgument, kWhere);
    }
  }
  if (value % scale != 0 || value / scale > kBytesMax) return fail(Code::kInvalidArgument, kWhere);
  return static_cast<std::uint64_t>(value / scale);
}

Result<std::uint64_t> parse_rate(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  return parse_bytes(text);
}

namespace {

struct TimeUnit {
  char letter;
  std::uint64_t seconds;
};
constexpr std::array<TimeUnit, 4> kTimeUnits = {{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};

}  // namespace

Result<std::uint64_t> parse_seconds(std::string_view text) {
  constexpr const char* kWhere = "time";
  const std::string_view digits = take_digits(text);
  std::uint64_t unit = text.empty() ? 1 : 0;
  for (const TimeUnit& one : kTimeUnits) {
    if (text.size() == 1 && text[0] == one.letter) unit = one.seconds;
  }
  if (digits.empty() || unit == 0) return fail(Code::kInvalidArgument, kWhere);
  std::uint64_t value = 0;
  for (const char digit : digits) {
    value = value * 10 + static_cast<unsigned>(digit - '0');
    if (value > kBytesMax / 86400) return fail(Code::kInvalidArgument, kWhere);
  }
  return value * unit;
}

std::string format_seconds(std::uint64_t seconds) {
  for (const TimeUnit& unit : kTimeUnits) {
    if (seconds != 0 && seconds % unit.seconds == 0) {
      return std::to_string(seconds / unit.seconds) + unit.letter;
    }
  }
  return "0s";
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                        "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  // 1023.95 would be printed as 1024.0, which is 1 of the next unit.
  while (unit + 1 < kUnits.size() && value >= 1023.95) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const bool whole = value >= 999.95;  // four digits before the point
  std::snprintf(text, sizeof(text), whole ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::vector<std::string> split(const std::string& list, char separator) {
  std::istringstream text(list);
  std::vector<std::string> parts;
  for (std::string part; std::getline(text, part, separator);) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace stdchk
