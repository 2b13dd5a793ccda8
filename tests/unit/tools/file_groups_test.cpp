#include "tools/drained/file_groups.h"

#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::tools;

FileGroup group(std::string name, std::string series, bool complete, std::int64_t newest_ns,
                std::size_t missing = 1) {
  FileGroup made;
  made.name = std::move(name);
  made.series = std::move(series);
  made.is_complete = complete;
  made.newest_ns = newest_ns;
  made.files = 2;
  made.missing = missing;
  made.missing_bytes = missing << 20;
  return made;
}

std::vector<std::string> names(const std::vector<FileGroup>& groups) {
  std::vector<std::string> out;
  for (const FileGroup& each : groups) out.push_back(each.name);
  return out;
}

}  // namespace

TEST_CASE("the newest complete set of each series comes first, then older, halves, other files") {
  std::vector<FileGroup> groups{
      group("log", "", false, 90),    group("a.*.T1", "/a", true, 1),
      group("b.*.T1", "/b", true, 2), group("a.*.T2", "/a", true, 3),
      group("a.*.T3", "/a", true, 4), group("a.*.T4", "/a", false, 5),
      group("input", "", false, 0),
  };
  sort_by_need(groups);
  CHECK(names(groups) ==
        std::vector<std::string>{"a.*.T3", "b.*.T1", "a.*.T2", "a.*.T1", "a.*.T4", "log", "input"});
}

TEST_CASE("lines name what is missing, and are not many") {
  std::vector<FileGroup> groups{group("run/a.*.T3", "run/a", true, 4, 2),
                                group("run/a.*.T2", "run/a", true, 3, 0),
                                group("run/a.*.T4", "run/a", false, 5), group("log", "", false, 9)};
  CHECK(missing_lines(groups) ==
        std::vector<std::string>{"run/a.*.T3: 2 of 2 files, 2.0 MiB",
                                 "run/a.*.T4: 1 of 2 files, 1.0 MiB; incomplete", "log: 1.0 MiB"});
  for (int i = 0; i < 30; ++i) groups.push_back(group("f" + std::to_string(i), "", false, 0));
  const auto lines = missing_lines(groups);
  CHECK(lines.size() == 21);
  CHECK(lines.back() == "and 13 more");
}

TEST_CASE("the newest safe set is complete and drained whole") {
  std::vector<FileGroup> groups{
      group("a.*.T1", "/a", true, 1, 0), group("a.*.T2", "/a", true, 2, 0),
      group("a.*.T3", "/a", true, 3, 1), group("a.*.T4", "/a", false, 4, 0),
      group("log", "", false, 9, 0),
  };
  REQUIRE(newest_safe_set(groups) != nullptr);
  CHECK(newest_safe_set(groups)->name == "a.*.T2");
  groups.erase(groups.begin(), groups.begin() + 2);
  CHECK(newest_safe_set(groups) == nullptr);
}
