#include "benefactor/memory/kernel_text.h"

#include <charconv>
#include <fstream>

namespace stdchk::benefactor {
namespace {

std::optional<std::uint64_t> to_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

/// Returns the first line that starts with `start`.
std::optional<std::string> line_of(const std::string& path, std::string_view start) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(start)) return line;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> keyed_number(const std::string& path, std::string_view key) {
  const auto line = line_of(path, key);
  if (!line) return std::nullopt;
  const auto digits = line->find_first_of("0123456789", key.size());
  if (digits == std::string::npos) return std::nullopt;
  return to_number(std::string_view(*line).substr(digits));
}

std::optional<std::uint64_t> whole_file_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return to_number(word);
}

std::optional<std::uint64_t> stalled_us(const std::string& path) {
  constexpr std::string_view kTotal = " total=";
  const auto line = line_of(path, "some ");
  if (!line) return std::nullopt;
  const auto total = line->find(kTotal);
  if (total == std::string::npos) return std::nullopt;
  return to_number(std::string_view(*line).substr(total + kTotal.size()));
}

}  // namespace stdchk::benefactor
