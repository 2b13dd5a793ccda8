#include "core/base/utf8.h"

namespace stdchk {

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80                       ? 1
                             : byte(0) >= 0xc2 && byte(0) <= 0xdf ? 2
                             : byte(0) >= 0xe0 && byte(0) <= 0xef ? 3
                             : byte(0) >= 0xf0 && byte(0) <= 0xf4 ? 4
                                                                  : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  if (length < 3) return length;
  // Not the shortest form, a surrogate, or above U+10FFFF (RFC 3629).
  const bool is_bad = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xed && byte(1) > 0x9f) ||
                      (byte(0) == 0xf0 && byte(1) < 0x90) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return is_bad ? 0 : length;
}

void cut_text(std::string& text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return;
  std::size_t end = bytes_max;
  const auto continues = [&] { return (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80; };
  while (end > 0 && continues()) --end;
  text.resize(end);
}

}  // namespace stdchk
