#include "fork/ticket/cluster.h"

#include <cstdlib>

#include "fork/ticket/program.h"
#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

const Host kLike{"", 1, std::uint64_t{1} << 30};

TEST_CASE("a PBS node file has a line for each processor") {
  const auto hosts = hosts_of_pbs("n2\nn1\nn2\nn2\n", kLike);
  REQUIRE(hosts);
  CHECK(*hosts ==
        std::vector<Host>{{"n2", 3, std::uint64_t{1} << 30}, {"n1", 1, std::uint64_t{1} << 30}});
  CHECK_FALSE(hosts_of_pbs("\n", kLike));
}

TEST_CASE("this host is the first, without a name, with the batch system's processors") {
  const std::vector<Host> hosts{{"n1.site", 4, 1}, {"n2.site", 8, 1}};
  const auto all = with_own_first(hosts, "n2", {"", 0, 7});
  CHECK(all == std::vector<Host>{{"", 8, 7}, {"n1.site", 4, 1}});
  CHECK(with_own_first(hosts, "n2", {"", 3, 7})[0].slots == 3);
  CHECK(with_own_first(hosts, "head", {"", 2, 7}).size() == 3);
}

TEST_CASE("outside a job there are no hosts of a batch system") {
  ::unsetenv("SLURM_JOB_NODELIST");
  ::unsetenv("PBS_NODEFILE");
  CHECK_FALSE(cluster_of("slurm", {}, 1, ""));
  CHECK_FALSE(cluster_of("pbs", {}, 1, ""));
  const auto alone = cluster_of("", {"", 5, 9}, 1, "");
  REQUIRE(alone);
  CHECK(alone->hosts == std::vector<Host>{{"", 5, 9}});
}

TEST_CASE("a site's program places no more clones than were asked for") {
  const auto placed = parse_placements(". 2\n\nn1 3\nn2 4\n", 4);
  REQUIRE(placed);
  CHECK(*placed == std::vector<Placement>{{"", 2}, {"n1", 2}});
  CHECK_FALSE(parse_placements("n1\n", 4));
  CHECK_FALSE(parse_placements("n1 2 3\n", 4));
  CHECK_FALSE(parse_placements("n1 -1x\n", 4));
}

TEST_CASE("a program that fails, or is not there, is an error with its name") {
  CHECK(output_of({"printf", "x"}).value() == "x");
  CHECK(output_of({"false"}).error().text.find("false") == 0);
  CHECK(output_of({"/none/such"}).error().text.find("/none/such") == 0);
}

}  // namespace
}  // namespace stdchk::fork
