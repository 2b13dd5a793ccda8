#include "core/policy/set_naming.h"

#include "core/policy/folder_settings.h"
#include "core/policy/name_patterns.h"
#include "core/policy/presets.h"
#include "core/policy/set_rules.h"
#include "tests/support/catch.h"

using namespace stdchk;

namespace {

bool is_image(const SetNaming& naming, std::string_view name, const PatternName& wanted) {
  const auto image = naming.parse(name);
  return image && static_cast<const ImageName&>(*image) == wanted &&
         image->is_word == wanted.is_word;
}

}  // namespace

TEST_CASE("without a pattern names have the form A.Ni.Tj") {
  const SetNaming naming;
  CHECK(is_image(naming, "heat.N3.T120", {{"heat", 3, 120}}));
  CHECK(is_image(naming, "my.app.N0.T007", {{"my.app", 0, 7}}));
  CHECK_FALSE(naming.parse("heat.T120"));
  CHECK(naming.set_of("heat.N3.T120") == "heat.*.T120");
  CHECK(naming.set_of("heat.N3.T007") == "heat.*.T007");
  CHECK(naming.until_timestep("heat.N3.T007") == "heat.N3.T");
}

TEST_CASE("a pattern names application, rank and timestep in any order") {
  const SetNaming restart("restart.{T}.{N|base}");
  CHECK(is_image(restart, "restart.100.3", {{"", 3, 100}}));
  CHECK(is_image(restart, "restart.100.base", {{"", 0, 100}, true}));
  CHECK_FALSE(restart.parse("restart.100.bases"));
  CHECK_FALSE(restart.parse("restart.100"));
  CHECK(restart.set_of("restart.0100.base") == "restart.0100.*");
  CHECK(restart.until_timestep("restart.100.3") == "restart.");
  const SetNaming lammps("{A}.N{N|base}.T{T}");
  CHECK(is_image(lammps, "lj.cut.Nbase.T5", {{"lj.cut", 0, 5}, true}));
  CHECK(is_image(lammps, "lj.cut.N12.T5", {{"lj.cut", 12, 5}}));
  const SetNaming single("{A}.{T}");
  CHECK(is_image(single, "a.b.7", {{"a.b", 0, 7}}));
  CHECK(single.set_of("a.b.7") == "a.b.7");
  CHECK_FALSE(single.parse(".7"));
  CHECK_FALSE(SetNaming("x.{T}").parse("x.99999999999999999999"));
}

TEST_CASE("a text that is no pattern is refused with the reason") {
  for (const char* text : {"", "restart", "{T", "T}", "{X}.{T}", "{T}.{T}", "{A}{T}", "{N|}.{T}",
                           "{N|a||b}.{T}", "{T|x}", "{}.{T}"}) {
    INFO(text);
    CHECK_FALSE(SetNaming::check(text));
  }
  const auto refused = parse_folder_settings("series=restart.{N}");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("{T}") != std::string::npos);
  CHECK_FALSE(check_rule("marker", "a/b"));
  CHECK_FALSE(check_rule("marker", "a||b"));
  CHECK_FALSE(check_rule("set", "files"));
}

TEST_CASE("patterns of names match as those of a shell") {
  const NamePatterns patterns("step-*|chk[0-9]?");
  CHECK(patterns.match("step-7"));
  CHECK(patterns.match("chk12"));
  CHECK_FALSE(patterns.match("chk1"));
  CHECK_FALSE(patterns.match("laststep-7"));
  CHECK_FALSE(NamePatterns("").match(""));
}

TEST_CASE("each preset is made of rules and settings that are valid") {
  for (const Preset& preset : presets()) {
    INFO(preset.name);
    const auto settings = parse_folder_settings("preset=" + std::string(preset.name));
    REQUIRE(settings);
    for (const auto& [key, value] : settings->rules) CHECK(check_rule(key, value));
  }
  CHECK(parse_folder_settings("preset=nothing").error().text.find("lammps") != std::string::npos);
}

TEST_CASE("settings of the policy and rules are read from one line") {
  const auto settings = parse_folder_settings("preset=dcp keep=2,copies=ec(4,2) marker=inherit");
  REQUIRE(settings);
  CHECK(settings->policy.get(PolicyKey::kKeep) == 2);
  CHECK(settings->policy.find(PolicyKey::kCopies));
  CHECK(settings->rules.at("set") == "directory");
  CHECK(settings->rules.at("marker").empty());
  CHECK(settings->policy.get(PolicyKey::kImages) == 1);
  for (const char* text : {"preset=dcp images=8", "images=8 preset=dcp"}) {
    CHECK(parse_folder_settings(text)->policy.get(PolicyKey::kImages) == 8);
  }
  CHECK_FALSE(parse_folder_settings("keep"));
  CHECK_FALSE(parse_folder_settings("set"));
}
