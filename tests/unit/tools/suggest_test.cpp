#include "tools/ask/suggest.h"

#include "core/policy/folder_settings.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

std::string best_for(const FolderNames& names) {
  const auto found = suggest_policies(names);
  return found.empty() ? "" : found.front().settings;
}

}  // namespace

TEST_CASE("names show the program that has written them") {
  CHECK(best_for({{"heat.N0.T1", "heat.N1.T1"}, {}}) == "preset=names images=2");
  CHECK(best_for({{"r.100.base", "r.100.0", "r.100.1", "r.100.2"}, {}}) ==
        "preset=lammps images=3");
  CHECK(best_for({{"lj.Nbase.T10", "lj.N0.T10", "lj.N1.T10"}, {}}) == "preset=lammps-n images=2");
  CHECK(best_for({{"state_step1000.cpt", "state.cpt"}, {}}) == "preset=gromacs");
  CHECK(best_for({{"latest"}, {{"global_step10", {"a.pt"}}, {"global_step20", {"a.pt"}}}}) ==
        "preset=deepspeed");
  CHECK(best_for({{}, {{"step-1", {".metadata", "__0_0.distcp"}}}}) == "preset=dcp");
  CHECK(best_for({{"latest_checkpointed_iteration.txt"}, {{"iter_0000010", {".metadata"}}}}) ==
        "preset=megatron");
  CHECK(best_for({{}, {{"one", {"inventory.img", "core-1.img"}}}}) == "preset=criu");
  CHECK(best_for({{"notes.txt"}, {{"src", {"main.c"}}}}).empty());
}

TEST_CASE("a setting without effect is named") {
  const FolderNames names{{"a.N0.T1"}, {{"step-1", {}}}};
  const auto idle = [&](std::string_view text) {
    return find_idle_rules(parse_folder_settings(text)->rules, names);
  };
  CHECK(idle("set=directory set-names=step-*").empty());
  CHECK(idle("set=directory set-names=iter_*").size() == 1);
  CHECK(idle("marker=.metadata").size() == 1);
  CHECK(idle("series=restart.{T}.{N}").size() == 1);
  CHECK(idle("series={A}.N{N}.T{T}").empty());
  CHECK(idle("set=directory series={A}.{T}").size() == 1);
}
