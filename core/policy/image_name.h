#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk {

/// An ImageName is a file name of the form A.Ni.Tj: application, node or rank, timestep.
/// "heat.N3.T120" means application "heat", node 3, timestep 120. The numbers are decimal; leading
/// zeros do not matter. The application may contain dots.
struct ImageName {
  std::string application;
  std::uint64_t node = 0;
  std::uint64_t timestep = 0;
  bool operator==(const ImageName&) const = default;
};

/// Returns the parts of `file_name`, or nothing for another kind of name.
std::optional<ImageName> parse_image_name(std::string_view file_name);

/// The symbolic link in a folder that names its newest complete set.
inline constexpr const char* kLatestName = "latest";

/// Returns true when the manager itself makes and removes such names, or reads sets from them. These
/// are images, the link `latest`, and names with a star, which the link may have as targets.
bool is_name_of_sets(std::string_view name);

/// Returns "A.*.Tj", which means all images of one timestep.
std::string set_name(std::string_view application, std::uint64_t timestep);
/// Parses "A.*.Tj", or the name of an image of that set. The node of the result has no meaning.
std::optional<ImageName> parse_set_name(std::string_view text);

}  // namespace stdchk
