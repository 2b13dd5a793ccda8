#include "tools/drained/undrained_file.h"

#include <fmt/core.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/base/limits.h"
#include "core/files/pool_files.h"

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

/// The largest list that is read: about a million names.
constexpr std::size_t kBytesMax = 64 * limits::kMiB;

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
  if (undrained.entries.empty()) {
    std::error_code code;
    fs::remove(path, code);
    return {};
  }
  std::string text = "# In the pool and not drained: files, of how many of the set, name\n";
  text += undrained.when + "\n";
  for (const auto& entry : undrained.entries) {
    text += fmt::format("{} {} {}\n", entry.missing, entry.files, entry.path);
  }
  // Made durable, because its reader may need it after a power failure.
  if (auto written = write_file_at_once(path, text, {.mode = 0666, .durable = true}); !written) {
    return problem("{} cannot be written: {}", path, describe(written.error()));
  }
  return {};
}

Undrained load_undrained(const std::string& path) {
  Undrained undrained;
  const auto text = read_own_file(path, kBytesMax);
  if (!text) return undrained;
  std::istringstream file(*text);
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
