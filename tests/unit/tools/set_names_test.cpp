#include "tools/base/set_names.h"

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

std::vector<std::string> names_of(const SetIndex& index, std::string_view set) {
  std::vector<std::string> out;
  const auto key = index.find(set);
  if (!key) return out;
  for (const SetMember& member : index.members(*key)) {
    const std::string rank = member.rank ? std::to_string(*member.rank) : "all";
    out.push_back(member.name + " of " + rank);
  }
  return out;
}

}  // namespace

TEST_CASE("files are found by the name of their set") {
  SetIndex index{SetNaming("{A}.{T}.{N|base}")};
  for (const char* name : {"melt.0100.0", "melt.0100.1", "melt.0100.base", "melt.0200.0", "log"}) {
    index.add(name);
  }
  CHECK(names_of(index, "melt.0100.*") ==
        std::vector<std::string>{"melt.0100.0 of 0", "melt.0100.1 of 1", "melt.0100.base of all"});
  CHECK(names_of(index, "melt.0200.*").size() == 1);
  CHECK_FALSE(index.find("melt.100.*"));
  CHECK_FALSE(index.find("log"));
  CHECK(index.key_of("melt.0200.0") == SetKey("melt", 200));
  CHECK(index.name_of({"melt", 200}) == "melt.0200.*");
}

TEST_CASE("a file that is a set of its own is of no rank") {
  SetIndex index{SetNaming("{A}_step{T}.cpt")};
  index.add("md_step10.cpt");
  CHECK(names_of(index, "md_step10.cpt") == std::vector<std::string>{"md_step10.cpt of all"});
}

TEST_CASE("sets of the form A.*.Tj are found without their zeros, and by the name of an image") {
  SetIndex index{SetNaming()};
  index.add("heat.N0.T007");
  CHECK(index.find("heat.*.T007") == SetKey("heat", 7));
  CHECK(index.find("heat.*.T7") == SetKey("heat", 7));
  CHECK(index.find("heat.N3.T7") == SetKey("heat", 7));
  CHECK_FALSE(index.find("heat.*.T8"));
}

TEST_CASE("a pointer names a directory by its name or by its number") {
  CHECK(is_named_by("step-1\n", "step-1"));
  CHECK_FALSE(is_named_by("step-10", "step-1"));
  CHECK_FALSE(is_named_by("old-step-1", "step-1"));
  CHECK(is_named_by("{\"path\": \"/run/step-1/\"}", "step-1"));
  CHECK(is_named_by("100", "iter_0000100"));
  CHECK(is_named_by("0", "iter_0000000"));
  CHECK_FALSE(is_named_by("10", "iter_0000100"));
  CHECK_FALSE(is_named_by("release", "iter_0000100"));
  CHECK_FALSE(is_named_by("", "step-1"));
  CHECK_FALSE(is_named_by("7", "best"));
}
