#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk {

/// An ImageName is a file name of the form A.Ni.Tj: application, node or rank, timestep.
/// "heat.N3.T120": application "heat", node 3, timestep 120. The numbers are decimal, without
/// leading zeros being significant; the application may contain dots.
struct ImageName {
  std::string application;
  std::uint64_t node = 0;
  std::uint64_t timestep = 0;
  bool operator==(const ImageName&) const = default;
};

/// The parts of `file_name`, or nothing when it is another kind of name.
std::optional<ImageName> parse_image_name(std::string_view file_name);

}  // namespace stdchk
