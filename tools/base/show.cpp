#include "tools/base/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace stdchk::tools {

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
  const std::time_t seconds = time_ns / 1'000'000'000;
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

void print(const nlohmann::json& json) {
  const std::string text =
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fputs(text.c_str(), stdout);
}

void print_table(const std::vector<std::vector<std::string>>& rows,
                 const std::vector<std::size_t>& right) {
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
