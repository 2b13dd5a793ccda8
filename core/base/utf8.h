#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stdchk {

/// Returns the length of the UTF-8 character at the beginning of `text`; 0: the first byte is no
/// part of a character (RFC 3629). Precondition: `text` is not empty.
std::size_t utf8_length(std::string_view text);

/// Shortens `text` to at most `bytes_max` bytes, and leaves no part of a character at its end.
void cut_text(std::string& text, std::size_t bytes_max);

}  // namespace stdchk
