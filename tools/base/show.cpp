#include "tools/base/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/base/file_time.h"
#include "core/base/utf8.h"

namespace stdchk::tools {
namespace {

/// Stands before the two digits of a byte that is not UTF-8: U+FDD0, which is no character. A name
/// that contains it gets its bytes marked, too.
constexpr std::string_view kMark = "\xef\xb7\x90";

/// A UTF-8 character, or a byte that is no part of a UTF-8 character.
struct Shown {
  std::string_view text;
  bool is_plain = true;  ///< no control character of a terminal; true for the end of a line
};

std::vector<Shown> parts_of(std::string_view text) {
  std::vector<Shown> out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view part = text.substr(0, std::max<std::size_t>(length, 1));
    const auto first = static_cast<unsigned char>(part[0]);
    const bool is_c0 = (first < 0x20 && first != '\n') || first == 0x7f;
    // U+0080 to U+009F are control characters, too. Some terminals read them as single bytes.
    const bool is_c1 = first == 0xc2 && length == 2 && static_cast<unsigned char>(part[1]) < 0xa0;
    out.push_back({part, length > 0 && !is_c0 && !is_c1});
    text.remove_prefix(part.size());
  }
  return out;
}

std::string escaped(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string with_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = text.starts_with(kMark) ? 0 : utf8_length(text);
    if (length == 0) {
      out += kMark;
      out += fmt::format("{:02x}", static_cast<unsigned char>(text[0]));
    }
    out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

nlohmann::json with_marks(const nlohmann::json& json) {
  if (json.is_string()) return with_marks(std::string_view(json.get_ref<const std::string&>()));
  if (json.is_array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& item : json) out.push_back(with_marks(item));
    return out;
  }
  if (!json.is_object()) return json;
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : json.items())
    out[with_marks(std::string_view(key))] = with_marks(value);
  return out;
}

}  // namespace

std::string_view type_name(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "file";
    case FileType::kDirectory:
      return "directory";
    case FileType::kSymlink:
      return "symlink";
    case FileType::kFifo:
      return "fifo";
    case FileType::kSocket:
      return "socket";
    case FileType::kCharacterDevice:
      return "character device";
    case FileType::kBlockDevice:
      return "block device";
  }
  return "unknown";
}

std::string time_text(std::int64_t time_ns) {
  const std::time_t seconds = to_timespec(time_ns).tv_sec;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

nlohmann::json to_json(const std::string& path, const Attributes& attributes) {
  return {{"path", path},
          {"type", type_name(attributes.type)},
          {"file_id", attributes.id.value},
          {"version", attributes.version},
          {"size_bytes", attributes.size_bytes},
          {"stored_bytes", attributes.stored_bytes},
          {"mode", fmt::format("{:04o}", attributes.mode)},
          {"uid", attributes.uid},
          {"gid", attributes.gid},
          {"mtime_ns", attributes.mtime_ns},
          {"drain", drain_name(attributes.drain)}};
}

std::string to_text(const nlohmann::json& json) {
  const std::string text = with_marks(json).dump(2, ' ', false);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text.compare(at, kMark.size(), kMark) == 0) {
      out += "\\udc" + text.substr(at + kMark.size(), 2);
      at += kMark.size() + 2;
    } else {
      out += text[at++];
    }
  }
  return out;
}

void print(const nlohmann::json& json) { std::printf("%s\n", to_text(json).c_str()); }

std::string shown(const std::string& text) {
  const auto is_plain = [](const Shown& part) { return part.is_plain && part.text != "\n"; };
  const std::vector<Shown> parts = parts_of(text);
  if (std::ranges::all_of(parts, is_plain)) return text;
  std::string out = "$'";
  for (const Shown& part : parts) {
    if (part.text == "'" || part.text == "\\") out += '\\';
    out += is_plain(part) ? std::string(part.text) : escaped(part.text);
  }
  return out + "'";
}

std::string shown_message(std::string_view text) {
  std::string out;
  for (const Shown& part : parts_of(text)) {
    out += part.is_plain ? std::string(part.text) : escaped(part.text);
  }
  return out;
}

void print_table(const std::vector<std::vector<std::string>>& cells,
                 const std::vector<std::size_t>& right) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows) std::ranges::transform(row, row.begin(), shown);
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool to_right = std::ranges::find(right, i) != right.end();
      line += fmt::format(fmt::runtime(to_right ? "{:>{}}" : "{:<{}}"), row[i], widths[i]);
      if (i + 1 < row.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace stdchk::tools
