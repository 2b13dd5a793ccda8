#include "tools/drained/safe_file.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "core/files/pool_files.h"
#include "tools/base/show.h"

namespace stdchk::tools {

Outcome<void> save_safe_set(const FileGroup& set, const std::string& path) {
  const std::string text =
      to_json(set).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  const timespec time{set.newest_ns / 1'000'000'000, set.newest_ns % 1'000'000'000};
  if (auto written = write_file_at_once(path, text, {.mode = 0666, .mtime = time}); !written) {
    return problem("{} cannot be written: {}", path, describe(written.error()));
  }
  return {};
}

}  // namespace stdchk::tools
