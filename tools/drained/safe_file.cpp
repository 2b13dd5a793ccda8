#include "tools/drained/safe_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/base/show.h"

namespace stdchk::tools {

Outcome<void> save_safe_set(const FileGroup& set, const std::string& path) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << to_json(set).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << "\n";
    file.close();
    if (!file) return problem("{} cannot be written", temporary);
  }
  const timespec time{set.newest_ns / 1'000'000'000, set.newest_ns % 1'000'000'000};
  const timespec times[2] = {time, time};
  if (::utimensat(AT_FDCWD, temporary.c_str(), times, 0) != 0) {
    return problem("the time of {} cannot be set", temporary);
  }
  std::error_code code;
  std::filesystem::rename(temporary, path, code);
  if (code) return problem("{} cannot be written: {}", path, code.message());
  return {};
}

}  // namespace stdchk::tools
