#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stdchk {

/// Writes all of `text`. Returns false on an error, with errno set.
bool write_all(int fd, std::string_view text);
/// Reads to the end of the file, at most `bytes_max`. Returns false on an error, with errno set.
bool read_text(int fd, std::size_t bytes_max, std::string& text);

}  // namespace stdchk
