#include "tools/drained/safe_file.h"

#include <nlohmann/json.hpp>

#include "core/base/file_time.h"
#include "core/files/pool_files.h"
#include "tools/base/show.h"

namespace stdchk::tools {

Outcome<void> save_safe_set(const FileGroup& set, const std::string& path) {
  const std::string text =
      to_json(set).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  if (auto written =
          write_file_at_once(path, text, {.mode = 0666, .mtime = to_timespec(set.newest_ns)});
      !written) {
    return problem("{} cannot be written: {}", path, describe(written.error()));
  }
  return {};
}

}  // namespace stdchk::tools
