#include "core/policy/redundancy.h"

#include <fmt/core.h>

#include <charconv>
#include <tuple>

#include "core/base/limits.h"

namespace stdchk {
namespace {

constexpr std::uint64_t kByte = 0xFF;

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

static_assert(limits::kStripeDataMin == 2 && limits::kStripeDataMax == 16 &&
                  limits::kStripeParityMax == 4,
              "kParityAllowed says so");

}  // namespace

std::optional<Redundancy> redundancy_of(std::uint64_t number) {
  if (number <= limits::kCopiesMax) {
    return Redundancy{static_cast<std::uint32_t>(number == 0 ? 1 : number), 0, 0};
  }
  const std::uint64_t data = number >> 16;
  const std::uint64_t parity = number >> 8 & kByte;
  const bool valid = (number & kByte) == 1 && data >= limits::kStripeDataMin &&
                     data <= limits::kStripeDataMax && parity >= 1 &&
                     parity <= limits::kStripeParityMax;
  if (!valid) return std::nullopt;
  return Redundancy{1, static_cast<std::uint32_t>(data), static_cast<std::uint32_t>(parity)};
}

std::string redundancy_text(const Redundancy& redundancy) {
  if (!redundancy.has_parity()) return std::to_string(redundancy.copies);
  return fmt::format("ec({},{})", redundancy.data, redundancy.parity);
}

std::optional<Redundancy> parse_redundancy(std::string_view text) {
  if (const auto copies = parse_number(text)) {
    if (*copies < 1 || *copies > limits::kCopiesMax) return std::nullopt;
    return Redundancy{*copies, 0, 0};
  }
  constexpr std::string_view kBefore = "ec(";
  const std::size_t comma = text.find(',');
  if (text.substr(0, kBefore.size()) != kBefore || text.back() != ')' || comma == text.npos) {
    return std::nullopt;
  }
  const auto data = parse_number(text.substr(kBefore.size(), comma - kBefore.size()));
  const auto parity = parse_number(text.substr(comma + 1, text.size() - comma - 2));
  if (!data || !parity || *data > limits::kStripeDataMax || *parity < 1 ||
      *parity > limits::kStripeParityMax) {
    return std::nullopt;
  }
  return redundancy_of(Redundancy{1, *data, *parity}.number());
}

bool is_stronger(const Redundancy& a, const Redundancy& b) {
  const auto key = [](const Redundancy& one) {
    return std::tuple(one.losses(), !one.has_parity(), limits::kStripeDataMax - one.data);
  };
  return key(a) > key(b);
}

}  // namespace stdchk
