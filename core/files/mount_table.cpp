#include "core/files/mount_table.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>
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

constexpr int kLinksMax = 40;           ///< as the kernel's own, path_resolution(7)
constexpr unsigned kUniqueId = 0x4000;  ///< STATX_MNT_ID_UNIQUE, newer than the C library's header

std::uint64_t ask_for_id(int folder, const char* path, int flags) {
  // A FUSE daemon may hang, so the kernel answers from what it knows.
  flags |= AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  for (const unsigned mask : {kUniqueId, unsigned{STATX_MNT_ID}}) {
    struct statx facts {};
    if (::statx(folder, path, flags, mask, &facts) != 0) return 0;
    if ((facts.stx_mask & mask) != 0) return facts.stx_mnt_id;
  }
  return 0;
}

}  // namespace

std::string real_mount_point(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::path at = fs::absolute(path, code);
  for (int links = 0; links < kLinksMax; ++links) {
    at = at.lexically_normal();
    if (!at.has_filename()) at = at.parent_path();
    const fs::path above = fs::weakly_canonical(at.parent_path(), code);
    if (!code && at.has_filename()) at = above / at.filename();
    const fs::path target = fs::read_symlink(at, code);
    if (code) break;
    at = at.parent_path() / target;
  }
  return at.string();
}

std::uint64_t mount_id(const std::string& directory) {
  return ask_for_id(AT_FDCWD, directory.c_str(), 0);
}

std::uint64_t mount_id(int directory) { return ask_for_id(directory, "", AT_EMPTY_PATH); }

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
