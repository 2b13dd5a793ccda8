#include "tools/ask/suggest.h"

#include "core/policy/folder_settings.h"
#include "tests/support/catch.h"
#include "tools/ask/set_faults.h"

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
  const std::string process = "a.out_1d64b124afe30f29-40000-66a1b2c3d4e5";
  CHECK(best_for({{"dmtcp_restart_script.sh", "dmtcp_restart_script_1d64b124-40000-66a1_00001.sh"},
                  {{"ckpt_1d64b124-40000-66a1_00001", {"ckpt_" + process + ".dmtcp"}}}}) ==
        "preset=dmtcp-unique");
  // All checkpoints have the same names: the preset needs another option of DMTCP, as it says.
  const auto in_place = suggest_policies({{"ckpt_" + process + ".dmtcp", "dmtcp_restart_script.sh"},
                                          {{"ckpt_" + process + "_files", {"out.txt"}}}});
  REQUIRE(in_place.size() == 1);
  CHECK(in_place.front().settings == "preset=dmtcp-unique");
  CHECK(in_place.front().sets == 0);
  CHECK(in_place.front().files.find("--enable-unique-checkpoint-filenames") != std::string::npos);
  CHECK(best_for({{"notes.txt"}, {{"src", {"main.c"}}}}).empty());
}

TEST_CASE("a setting without effect is named") {
  const FolderNames names{{"a.N0.T1"}, {{"step-1", {}}}};
  const auto idle = [&](std::string_view text) {
    return find_idle_rules(parse_folder_settings(text)->rules, names);
  };
  CHECK(idle("set=directory set-names=step-*").empty());
  CHECK(idle("set=directory set-names=iter_*").size() == 1);
  CHECK(find_idle_rules(parse_folder_settings("set=directory set-names=step-*")->rules,
                        {{"step-1"}, {}})
            .size() == 1);
  CHECK(
      find_idle_rules(parse_folder_settings("set=directory set-names=step-*")->rules, {}).empty());
  CHECK(idle("marker=.metadata").size() == 1);
  CHECK(idle("series=restart.{T}.{N}").size() == 1);
  CHECK(idle("series={A}.N{N}.T{T}").empty());
  CHECK(idle("set=directory series={A}.{T}").size() == 1);
}

TEST_CASE("sets that can never be complete are named") {
  const auto faults = [](std::string_view text, const FolderNames& names, bool drains = true) {
    const auto settings = parse_folder_settings(text);
    return find_set_faults({names, settings->rules, settings->policy, drains});
  };
  const FolderNames images{{"a.N0.T1", "a.N1.T1", "a.N0.T2"}, {}};
  CHECK(faults("images=2", images).empty());
  CHECK(faults("must-be-drained=yes", images).empty());
  CHECK(faults("must-be-drained=yes", images, false).size() == 1);
  CHECK(faults("must-be-drained=yes drain-every=2", images).size() == 1);
  CHECK(faults("drain-every=2", images).empty());
  const FolderNames twice{{"a.N0.T1", "a.N00.T1", "a.N1.T1", "a.N0.T2", "a.N1.T2"}, {}};
  REQUIRE(faults("images=2", twice).size() == 1);
  CHECK(faults("images=2", twice)[0] ==
        "the set a.*.T1 can never be complete: a.N0.T1 and a.N00.T1 are two names of one rank. "
        "Remove one of them");
  CHECK(faults("series=r.{T}.{N|base}", {{"r.1.base", "r.1.0", "r.1.00"}, {}}).size() == 1);
  const FolderNames steps{{"latest"}, {{"step-1", {}}}};
  CHECK(faults("set=directory", steps).size() == 1);
  CHECK(faults("set=directory images=4", steps).empty());
  CHECK(faults("set=directory pointer=latest", steps).empty());
}
