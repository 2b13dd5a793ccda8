#include "tools/drained/undrained_file.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/files/durable.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// Takes the number at the beginning of the text, and the space after it.
std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc() || stop == end || *stop != ' ') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()) + 1);
  return number;
}

}  // namespace

Outcome<void> save_undrained(const Undrained& undrained, const std::string& path) {
  std::error_code code;
  if (undrained.entries.empty()) {
    fs::remove(path, code);
    return {};
  }
  const std::string temporary = path + ".new";
  std::ofstream file(temporary, std::ios::trunc);
  file << "# In the pool and not drained: files, of how many of the set, name\n"
       << undrained.when << "\n";
  for (const auto& entry : undrained.entries) {
    file << entry.missing << " " << entry.files << " " << entry.path << "\n";
  }
  file.close();
  // Made durable, because its reader may need it after a power failure.
  const bool written = file && sync_path(temporary);
  if (written) fs::rename(temporary, path, code);
  const std::string folder = fs::path(path).parent_path();
  if (!written || code || !sync_path(folder.empty() ? "." : folder)) {
    return problem("{} cannot be written", path);
  }
  return {};
}

Undrained load_undrained(const std::string& path) {
  Undrained undrained;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::getline(file, undrained.when);
  while (std::getline(file, line)) {
    std::string_view left = line;
    const auto missing = take_number(left);
    const auto files = take_number(left);
    if (!missing || !files || *missing > *files || left.empty()) continue;
    undrained.entries.push_back({std::string(left), *missing, *files});
  }
  return undrained;
}

}  // namespace stdchk::tools
