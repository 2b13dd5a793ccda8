#pragma once

#include <cstddef>
#include <string_view>

namespace stdchk {

/// Returns the length of the UTF-8 character at the beginning of `text`; 0: the first byte is no
/// part of a character (RFC 3629). Precondition: `text` is not empty.
std::size_t utf8_length(std::string_view text);

}  // namespace stdchk
