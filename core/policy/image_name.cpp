#include "core/policy/image_name.h"

#include <charconv>

namespace stdchk {
namespace {

/// Removes ".<letter><decimal number>" from the end of `name` and returns the number.
std::optional<std::uint64_t> take_number(std::string_view& name, char letter) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view part = name.substr(dot + 1);
  if (part.size() < 2 || part[0] != letter) return std::nullopt;
  std::uint64_t number = 0;
  const char* end = part.data() + part.size();
  const auto parsed = std::from_chars(part.data() + 1, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  name = name.substr(0, dot);
  return number;
}

}  // namespace

std::optional<ImageName> parse_image_name(std::string_view file_name) {
  const auto timestep = take_number(file_name, 'T');
  if (!timestep) return std::nullopt;
  const auto node = take_number(file_name, 'N');
  if (!node || file_name.empty() || file_name.find('/') != std::string_view::npos) {
    return std::nullopt;
  }
  return ImageName{std::string(file_name), *node, *timestep};
}

bool is_name_of_sets(std::string_view name) {
  // The link `latest` may name a set as a name with a star, and then the pool refuses such files.
  return name == kLatestName || name.find('*') != std::string_view::npos ||
         parse_image_name(name).has_value();
}

std::string set_name(std::string_view application, std::uint64_t timestep) {
  return std::string(application) + ".*.T" + std::to_string(timestep);
}

std::optional<ImageName> parse_set_name(std::string_view text) {
  const std::size_t star = text.rfind(".*.T");
  if (star == std::string_view::npos) return parse_image_name(text);
  return parse_image_name(std::string(text.substr(0, star)) + ".N0" +
                          std::string(text.substr(star + 2)));
}

}  // namespace stdchk
