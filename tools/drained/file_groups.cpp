#include "tools/drained/file_groups.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/base/file_time.h"
#include "core/base/units.h"

namespace stdchk::tools {
namespace {

constexpr std::size_t kShownMax = 20;

}  // namespace

void sort_by_need(std::vector<FileGroup>& groups) {
  const auto rank = [](const FileGroup& group) {
    return group.is_complete ? 0 : group.is_set() ? 1 : 2;
  };
  std::ranges::stable_sort(groups, [&](const FileGroup& one, const FileGroup& other) {
    return std::tuple(rank(one), -one.newest_ns) < std::tuple(rank(other), -other.newest_ns);
  });
  std::set<std::string> have_newest;
  std::stable_partition(groups.begin(), groups.end(), [&](const FileGroup& group) {
    return group.is_complete && have_newest.insert(group.series).second;
  });
}

std::vector<std::string> missing_lines(const std::vector<FileGroup>& groups) {
  std::vector<std::string> lines;
  std::size_t more = 0;
  for (const FileGroup& group : groups) {
    if (group.missing == 0) continue;
    if (lines.size() == kShownMax) {
      ++more;
      continue;
    }
    const std::string bytes = format_bytes(group.missing_bytes);
    lines.push_back(group.is_set()
                        ? fmt::format("{}: {} of {} files, {}{}", group.name, group.missing,
                                      group.files, bytes, group.is_complete ? "" : "; incomplete")
                        : fmt::format("{}: {}", group.name, bytes));
  }
  if (more > 0) lines.push_back(fmt::format("and {} more", more));
  return lines;
}

const FileGroup* newest_safe_set(const std::vector<FileGroup>& groups) {
  const FileGroup* newest = nullptr;
  for (const FileGroup& group : groups) {
    if (!group.is_complete || group.missing > 0) continue;
    if (newest == nullptr || group.newest_ns > newest->newest_ns) newest = &group;
  }
  return newest;
}

nlohmann::json to_json(const FileGroup& set) {
  const std::time_t seconds = to_timespec(set.newest_ns).tv_sec;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"name", set.name}, {"time", text}, {"time_ns", set.newest_ns}};
}

}  // namespace stdchk::tools
