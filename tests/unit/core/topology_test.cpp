#include "core/policy/topology.h"

#include "tests/support/catch.h"

using namespace stdchk;

TEST_CASE("a topology says for each host which others fail with it") {
  const auto topology = Topology::parse(
      "# the machine room\n"
      "n1 rack=r1 switch=s1\n"
      "\n"
      "n2 switch=s1 rack=r2 node=twin   # shares a box\n"
      "n3\n");
  REQUIRE(topology);
  CHECK(*topology->find("n1") == Topology::Place{"", "r1", "s1"});
  CHECK(*topology->find("n2") == Topology::Place{"twin", "r2", "s1"});
  CHECK(*topology->find("n3") == Topology::Place{});
  CHECK(*topology->find("n1.cluster.example") == Topology::Place{"", "r1", "s1"});
  CHECK(topology->find("n4") == nullptr);
  CHECK(Topology::parse("")->empty());
}

TEST_CASE("a wrong line of a topology is named with its number") {
  for (const auto& [text, what] : {std::pair{"a rack=1\nb rack", "line 2: \"rack\""},
                                   {"rack=1", "line 1: a line begins"},
                                   {"a row=1", "\"row=1\""},
                                   {"a rack=1 rack=2", "twice"},
                                   {"a\na", "listed twice"},
                                   {"a rack=", "\"rack=\""}}) {
    INFO(text);
    const auto topology = Topology::parse(text);
    REQUIRE_FALSE(topology);
    CHECK(topology.error().text.find(what) != std::string::npos);
  }
  CHECK(Topology::read("/nonexistent/topology").error().text.find("cannot be read") == 0);
}
