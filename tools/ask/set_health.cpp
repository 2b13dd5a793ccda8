#include "tools/ask/set_health.h"

#include <fmt/core.h>

#include "tools/ask/set_folders.h"
#include "tools/base/connection.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Kind = Finding::Kind;
constexpr std::size_t kShownMax = 5;
constexpr const char* kWhat = "sets";

}  // namespace

Finding examine_sets(const PoolRecord& pool) {
  auto filesystem = connect(pool);
  if (!filesystem) return {Kind::kBad, kWhat, filesystem.error().text, "see `stdchk status`", {}};
  const auto folders = examine_set_folders(**filesystem);
  if (!folders) return {Kind::kNote, kWhat, folders.error().text, "see `stdchk status`", {}};
  if (folders->faulty.empty() && folders->fitting.empty()) {
    return {Kind::kGood, kWhat, "the rules of all folders fit their names", "", {}};
  }
  Finding finding{Kind::kNote, kWhat, "", "", nlohmann::json::array()};
  std::size_t count = 0;
  const auto add = [&](const std::string& path, const std::string& sentence) {
    if (count++ >= kShownMax) return;
    if (!finding.found.empty()) finding.found += "; ";
    finding.found += shown(fmt::format("/{}: {}", path, sentence));
  };
  for (const FaultyFolder& folder : folders->faulty) {
    finding.figures.push_back({{"path", folder.path}, {"warnings", folder.faults}});
    for (const std::string& fault : folder.faults) add(folder.path, fault);
  }
  for (const FittingFolder& folder : folders->fitting) {
    finding.figures.push_back({{"path", folder.path}, {"suggested", folder.settings}});
    add(folder.path, fmt::format("no rule says which files are a set; {} fits the names ({})",
                                 folder.settings, folder.files));
  }
  if (count > kShownMax) finding.found += fmt::format("; and {} more", count - kShownMax);
  finding.remedy = folders->faulty.empty()
                       ? "see `stdchk policy suggest DIR`"
                       : "see `stdchk policy get DIR` and `stdchk set list DIR`";
  return finding;
}

}  // namespace stdchk::tools
