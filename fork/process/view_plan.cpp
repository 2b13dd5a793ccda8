#include "fork/process/view_plan.h"

#include <algorithm>
#include <array>
#include <sstream>

namespace stdchk::fork {
namespace {

constexpr std::array<std::string_view, 9> kLocalTypes = {
    "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs", "overlay"};

/// Octal escapes of proc(5): "\040" is a blank.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++) {
    const auto digit = [&](std::size_t k) {
      return i + k < text.size() && text[i + k] >= '0' && text[i + k] <= '7';
    };
    if (text[i] == '\\' && digit(1) && digit(2) && digit(3)) {
      out +=
          static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_below(std::string_view path, std::string_view folder) {
  return path == folder ||
         (path.starts_with(folder) && path.substr(folder.size()).starts_with("/"));
}

struct Line {
  std::string path;
  std::string options;
  std::string type;
};

bool read(const std::string& text, Line& line) {
  std::istringstream in(text);
  std::string id, parent, device, root, word;
  if (!(in >> id >> parent >> device >> root >> line.path >> line.options)) return false;
  while (in >> word && word != "-") {
  }
  if (word != "-" || !(in >> line.type)) return false;
  line.path = unescape(line.path);
  return true;
}

Showing showing_of(const Line& line) {
  if (line.path == "/proc") return Showing::kProc;
  if (line.path == "/dev/shm") return Showing::kMemory;
  if (line.type == "mqueue") return Showing::kQueue;
  const bool is_local =
      std::find(kLocalTypes.begin(), kLocalTypes.end(), line.type) != kLocalTypes.end();
  const bool is_writable = line.options == "rw" || line.options.starts_with("rw,");
  // tmpfs of the system with devices in it cannot be used through an overlay.
  if (line.path == "/dev") return Showing::kShared;
  if (line.path == "/") return Showing::kOverlay;
  return is_local && is_writable ? Showing::kOverlay : Showing::kShared;
}

}  // namespace

std::vector<ViewMount> plan_view(std::string_view mountinfo, std::string_view state) {
  std::vector<ViewMount> plan;
  std::istringstream in{std::string(mountinfo)};
  for (std::string text; std::getline(in, text);) {
    Line line;
    if (!read(text, line)) continue;
    if (line.path != "/proc" && is_below(line.path, "/proc")) continue;
    if (is_below(line.path, state)) continue;
    // A later mount at the same path hides the earlier one.
    std::erase_if(plan, [&](const ViewMount& other) { return other.path == line.path; });
    plan.push_back({line.path, showing_of(line)});
  }
  // Sorts a folder before the mounts inside the folder.
  std::stable_sort(plan.begin(), plan.end(),
                   [](const ViewMount& a, const ViewMount& b) { return a.path < b.path; });
  return plan;
}

std::string folder_of(std::string_view path) {
  std::string name;
  for (const char c : path) {
    if (c == '/')
      name += "%";
    else if (c == '%')
      name += "%%25";
    else
      name += c;
  }
  return name;
}

std::string overlay_word(std::string_view path) {
  std::string word;
  for (const char c : path) {
    if (c == '\\' || c == ':' || c == ',') word += '\\';
    word += c;
  }
  return word;
}

}  // namespace stdchk::fork
