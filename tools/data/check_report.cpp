#include "tools/data/check_report.h"

#include <fmt/core.h>

#include "core/base/units.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"

namespace stdchk::tools {

void Faults::add(const std::string& path, const std::string& fault) {
  list_.push_back({{"path", path}, {"fault", fault}});
  if (!as_json_) fmt::print("{} {}\n", shown(path), shown_message(fault));
}

int Faults::exit_status() const { return list_.empty() ? kExitGood : kExitNo; }

int report_checks(const std::vector<FileCheck>& all, const CheckWords& words, bool as_json) {
  Faults bad(as_json);
  nlohmann::json unlisted = nlohmann::json::array();
  std::uint64_t checked = 0;
  std::uint64_t unknown = 0;
  for (const FileCheck& file : all) {
    if (file.unlisted) {
      unlisted.push_back(file.path);
      if (!as_json) fmt::print("{} {}: nothing is known of it\n", shown(file.path), words.unlisted);
      continue;
    }
    checked += file.checked_bytes;
    unknown += file.unknown_bytes;
    if (!file.fault.empty()) bad.add(file.path, file.fault);
  }
  const std::size_t files = all.size() - unlisted.size();
  if (as_json) {
    print({{"files", files},
           {"bad", bad.list()},
           {"unlisted", unlisted},
           {"checked_bytes", checked},
           {"unknown_bytes", unknown}});
  } else {
    fmt::print("{} files, {} bad; {} compared with their checksums, {}: {}; {} {}\n", files,
               bad.count(), format_bytes(checked), words.without, format_bytes(unknown),
               unlisted.size(), words.unlisted_sum);
  }
  return bad.exit_status();
}

}  // namespace stdchk::tools
