#include "fork/ticket/host_table.h"

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST_CASE("fewer clones are given than asked for when slots or memory end") {
  HostTable slots({{"a", 2, 100 * kGiB}});
  CHECK(slots.request(1, {5, kGiB}).value() == std::vector<Placement>{{"a", 2}});
  HostTable memory({{"a", 8, 3 * kGiB}});
  CHECK(memory.request(1, {5, kGiB}).value() == std::vector<Placement>{{"a", 3}});
}

TEST_CASE("nothing is given when nothing fits") {
  HostTable table({{"a", 4, kGiB}});
  CHECK(table.request(1, {1, 2 * kGiB}).value().empty());
  CHECK(table.request(1, {1, kGiB}).value().size() == 1);
}

TEST_CASE("clones are spread over the hosts by their free slots") {
  HostTable table({{"a", 4, 9 * kGiB}, {"b", 2, 9 * kGiB}});
  CHECK(table.request(1, {4, kGiB}).value() == std::vector<Placement>{{"a", 3}, {"b", 1}});
  CHECK(table.request(2, {4, kGiB}).value() == std::vector<Placement>{{"a", 1}, {"b", 1}});
}

TEST_CASE("a released ticket's clones can be given again") {
  HostTable table({{"a", 2, 9 * kGiB}});
  REQUIRE(table.request(1, {2, kGiB}).value().size() == 1);
  CHECK(table.request(2, {1, kGiB}).value().empty());
  table.release(1);
  table.release(1);
  CHECK(table.request(2, {2, kGiB}).value() == std::vector<Placement>{{"a", 2}});
}

TEST_CASE("clones that cannot leave this host get no others") {
  HostTable table({{"", 2, 9 * kGiB}, {"far", 9, 9 * kGiB}});
  CHECK(table.request(1, {5, kGiB, true}).value() == std::vector<Placement>{{"", 2}});
  CHECK(table.request(2, {5, kGiB, true}).value().empty());
  CHECK(table.request(3, {1, kGiB}).value() == std::vector<Placement>{{"far", 1}});
}

TEST_CASE("a ticket is served once") {
  HostTable table({{"a", 4, 9 * kGiB}});
  REQUIRE(table.request(1, {1, kGiB}));
  CHECK_FALSE(table.request(1, {1, kGiB}));
}

TEST_CASE("a host list has names, slots and memory") {
  const auto hosts =
      parse_hosts("# rack 1\nnode1 slots=4 memory=2G\n\nnode2  # small\n", {"", 1, kGiB});
  CHECK(hosts.value() == std::vector<Host>{{"node1", 4, 2 * kGiB}, {"node2", 1, kGiB}});
  CHECK(parse_hosts("a slots=0", {}).error().text == "Line 1: slots= needs a number from 1.");
  CHECK(parse_hosts("a\na", {}).error().text == "Line 2: the host a is named twice.");
  CHECK_FALSE(parse_hosts("a core=1", {}));
  CHECK_FALSE(parse_hosts("# nobody\n", {}));
}

TEST_CASE("an allocation of Slurm is read") {
  const auto hosts = hosts_of_slurm("n1\nn2\nn3\n", "16(x2),8", {"", 0, kGiB});
  CHECK(hosts.value() == std::vector<Host>{{"n1", 16, kGiB}, {"n2", 16, kGiB}, {"n3", 8, kGiB}});
  CHECK_FALSE(hosts_of_slurm("n1\nn2\n", "16", {}));
  CHECK_FALSE(hosts_of_slurm("n1\n", "16(x", {}));
  CHECK_FALSE(hosts_of_slurm("n1\n", "many", {}));
}

}  // namespace
}  // namespace stdchk::fork
