#pragma once

#include <cstddef>
#include <string>

namespace stdchk {

/// Reads the last `bytes_max` bytes of a regular file of this user or of root: what a process said
/// last, from its log. The text is empty if the file cannot be read, or is a link.
std::string end_of_log(const std::string& path, std::size_t bytes_max);

}  // namespace stdchk
