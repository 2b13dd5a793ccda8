#include "core/mount_table.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace stdchk {
namespace {

/// Decodes a path: mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::optional<MountEntry> find_mount(const std::string& directory, const std::string& table) {
  std::ifstream file(table);
  std::optional<MountEntry> found;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, point;
    if (!(words >> id >> parent >> device >> root >> point)) continue;
    if (unescape(point) != directory) continue;
    found.emplace();
    const std::size_t minor = device.find(':') + 1;
    std::from_chars(device.data() + minor, device.data() + device.size(), found->minor);
    for (std::string word; words >> word && word != "-";) {
    }
    words >> found->type >> found->source;
  }
  return found;
}

}  // namespace stdchk
