#include "tools/ask/suggest.h"

#include "core/policy/folder_settings.h"
#include "core/policy/set_rules.h"
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
  CHECK(best_for({{"dmtcp_coordinator.log"},
                  {{"one", {"ckpt_" + process + ".dmtcp", "dmtcp_restart_script.sh"}}}}) ==
        "preset=dmtcp");
  CHECK(best_for({{}, {{"chk00010", {"Header", "Level_0"}}, {"plt00010", {"Header"}}}}) ==
        "preset=amrex");
  CHECK(best_for({{}, {{"plots", {"one.png"}}, {"chk00010", {}}}}).empty());
  CHECK(best_for({{}, {{"out.100.bp", {"data.0", "md.0", "md.idx", "profiling.json"}}}}) ==
        "preset=adios");
  CHECK(best_for({{"state.100.h5", "state.200.h5"}, {}}) == "preset=hdf5");
  CHECK(best_for({{"ocean.100.nc", "ocean.200.nc"}, {}}) == "preset=netcdf");
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

TEST_CASE("a marker and a pointer that no file matches are named") {
  const auto idle = [&](std::string_view text, const FolderNames& names) {
    return find_idle_rules(parse_folder_settings(text)->rules, names);
  };
  const FolderNames two{{"latest"},
                        {{"step-1", {".metadata", "__0_0.distcp"}}, {"step-2", {"__0_0.distcp"}}}};
  const FolderNames one{{}, {{"step-1", {"__0_0.distcp"}}, {"step-2", {}}, {"logs", {"a", "b"}}}};
  constexpr std::string_view kSets = "set=directory set-names=step-* ";
  CHECK(idle(std::string(kSets) + "marker=.metadata", two).empty());
  CHECK(idle(std::string(kSets) + "marker=.metadata pointer=newest", two).empty());
  CHECK(idle(std::string(kSets) + "pointer=latest|LATEST", two).empty());
  // The program still writes its first set.
  CHECK(idle(std::string(kSets) + "marker=.metadata", one).empty());
  REQUIRE(idle(std::string(kSets) + "marker=.metdata", two).size() == 1);
  CHECK(idle(std::string(kSets) + "marker=.metdata", two)[0] ==
        "no file in the sets matches marker=.metdata");
  REQUIRE(idle(std::string(kSets) + "pointer=newest", two).size() == 1);
  CHECK(idle(std::string(kSets) + "pointer=newest", two)[0] ==
        "no file beside the sets matches pointer=newest");
  CHECK(idle(std::string(kSets) + "marker=.metdata pointer=newest", two).size() == 2);
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
  const FolderNames two_ways{{"a.N0.T1", "a.N1.T01", "a.N0.T2", "a.N1.T2"}, {}};
  REQUIRE(faults("images=2", two_ways).size() == 1);
  CHECK(faults("images=2", two_ways)[0] ==
        "the set a.*.T1 can never be complete: a.N0.T1 and a.N1.T01 write its timestep in two "
        "ways. Rename one of them");
  // Only LAMMPS writes a base file.
  const FolderNames no_base{{"r.1.0", "r.1.1", "r.2.0", "r.2.1"}, {}};
  CHECK(faults("preset=lammps images=2", no_base).size() == 1);
  CHECK(faults("series={A}.{T}.{N} images=2", no_base).empty());
  CHECK(faults("preset=lammps images=2", {{"r.1.0", "r.1.1"}, {}}).empty());
  const FolderNames steps{{"latest"}, {{"step-1", {}}}};
  CHECK(faults("set=directory", steps).size() == 1);
  CHECK(faults("set=directory images=4", steps).empty());
  CHECK(faults("set=directory pointer=latest", steps).empty());
}

TEST_CASE("settings for sets in a folder whose files have other names are named") {
  const auto faults = [](std::string_view text, const FolderNames& names) {
    const auto settings = parse_folder_settings(text);
    return find_set_faults({names, settings->rules, settings->policy, true});
  };
  const FolderNames others{{"restart.100.0", "restart.100.1"}, {}};
  REQUIRE(faults("images=64 keep=2", others).size() == 1);
  CHECK(faults("images=64 keep=2", others)[0] ==
        "images, keep: no effect, because no file has a name A.Ni.Tj. Set series=PATTERN, or a "
        "preset "
        "that `stdchk policy suggest` shows");
  CHECK(faults("drain-every=2", others).size() == 1);
  CHECK(faults("copies=2", others).empty());
  CHECK(faults("images=64", {}).empty());
  CHECK(faults("images=2", {{"restart.100.0", "a.N0.T1"}, {}}).empty());
  // Subdirectories inherit the policy, and have images.
  CHECK(faults("images=64", {{"job.log"}, {{"run", {"a.N0.T1"}}}}).empty());
}

TEST_CASE("an application whose last sets are not complete is named, with the problem of one") {
  using Entry = msg::ListSets::Entry;
  const auto entry = [](const std::string& application, std::uint64_t timestep,
                        const std::string& problem) {
    Entry out;
    out.application = application;
    out.timestep = timestep;
    out.images = 1;
    out.bytes = 1;
    out.complete = problem.empty();
    out.problem = problem;
    return out;
  };
  const auto found = [](std::vector<Entry> newest_first) {
    return find_incomplete_sets({2, std::move(newest_first)});
  };
  const std::string half = "it has 1 of 2 images";
  CHECK(found({}).empty());
  // The program still writes its newest set.
  CHECK(found({entry("a", 1, half)}).empty());
  CHECK(found({entry("a", 2, half), entry("a", 1, "")}).empty());
  CHECK(found({entry("a", 2, half), entry("b", 2, half), entry("a", 1, "")}).empty());
  // Incomplete sets of killed jobs do not matter after a complete set.
  CHECK(found({entry("a", 3, ""), entry("a", 2, half), entry("a", 1, half)}).empty());
  const auto told = found({entry("a", 3, "another"), entry("a", 2, half), entry("a", 1, half)});
  REQUIRE(told.size() == 1);
  CHECK(told[0] == "the newest 3 sets are not complete. a.*.T2: it has 1 of 2 images");
  // An empty directory does not count: its program writes no file yet.
  Entry empty = entry("step-3", kNamedTimestep, "it has no files");
  empty.images = empty.bytes = 0;
  CHECK(found({entry("step-2", kNamedTimestep, half), empty}).empty());
  CHECK(found({entry("step-2", kNamedTimestep, half), entry("step-1", kNamedTimestep, half)}) ==
        std::vector<std::string>{"the newest 2 sets are not complete. step-1: " + half});
}
