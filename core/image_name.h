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

/// "A.*.Tj": all images of one timestep.
std::string set_name(std::string_view application, std::uint64_t timestep);
/// The set that "A.*.Tj", or the name of one of its images, stands for; its node means nothing.
std::optional<ImageName> parse_set_name(std::string_view text);

}  // namespace stdchk
