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
  const auto faulty = find_faulty_folders(**filesystem);
  if (!faulty) return {Kind::kNote, kWhat, faulty.error().text, "see `stdchk status`", {}};
  if (faulty->empty()) {
    return {Kind::kGood, kWhat, "the rules of all folders fit their names", "", {}};
  }
  Finding finding{Kind::kNote, kWhat, "", "see `stdchk policy get DIR` and `stdchk set list DIR`",
                  nlohmann::json::array()};
  std::size_t count = 0;
  for (const FaultyFolder& folder : *faulty) {
    finding.figures.push_back({{"path", folder.path}, {"warnings", folder.faults}});
    for (const std::string& fault : folder.faults) {
      if (count++ >= kShownMax) continue;
      if (!finding.found.empty()) finding.found += "; ";
      finding.found += shown(fmt::format("/{}: {}", folder.path, fault));
    }
  }
  if (count > kShownMax) finding.found += fmt::format("; and {} more", count - kShownMax);
  return finding;
}

}  // namespace stdchk::tools
