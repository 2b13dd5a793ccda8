#include "tools/advice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tools/job_plan.h"

using namespace stdchk::tools;

namespace {

/// The probability that every image can be read when `failed` random nodes of `nodes` are gone,
/// each having kept its own image and `replicas` more on others at random. The image of a node that
/// lives is there. That of a failed one is gone when all its replicas are among the other failed
/// nodes, and the replicas of different nodes are drawn independently: so this is exact.
double all_readable(std::uint32_t nodes, std::uint32_t replicas, std::uint32_t failed) {
  double gone = 1;
  for (std::uint32_t i = 0; i < replicas; ++i) {
    gone *= std::max(0.0, failed - 1.0 - i) / (nodes - 1.0 - i);
  }
  return std::pow(1 - gone, failed);
}

/// The most failures that leave every image readable with at least this probability.
std::uint32_t allowed(std::uint32_t nodes, std::uint32_t replicas, double probability) {
  std::uint32_t failures = 0;
  while (all_readable(nodes, replicas, failures + 1) >= probability) ++failures;
  return failures;
}

/// As all_readable(), by looking at every way to place one replica of each node and to lose
/// `failed` nodes.
double all_readable_by_counting(std::uint32_t nodes, std::uint32_t failed) {
  std::uint64_t cases = 0;
  std::uint64_t good = 0;
  std::vector<std::uint32_t> holder(nodes, 0);  // of the replica, among the other nodes
  for (bool more = true; more;) {
    for (std::uint32_t lost = 0; lost < 1U << nodes; ++lost) {
      if (static_cast<std::uint32_t>(std::popcount(lost)) != failed) continue;
      bool readable = true;
      for (std::uint32_t node = 0; node < nodes; ++node) {
        const std::uint32_t other = holder[node] + (holder[node] >= node ? 1U : 0U);
        readable = readable && (((lost >> node) & 1U) == 0 || ((lost >> other) & 1U) == 0);
      }
      ++cases;
      if (readable) ++good;
    }
    std::uint32_t at = 0;
    while (at < nodes && ++holder[at] == nodes - 1) holder[at++] = 0;
    more = at < nodes;
  }
  return static_cast<double>(good) / static_cast<double>(cases);
}

bool is_near(std::uint32_t a, std::uint32_t b) {
  return std::abs(static_cast<int>(a) - static_cast<int>(b)) <= 1;
}

}  // namespace

TEST_CASE("the exact probability is what counting all cases gives") {
  for (std::uint32_t failed = 1; failed <= 5; ++failed) {
    INFO(failed << " failed");
    CHECK(std::abs(all_readable(5, 1, failed) - all_readable_by_counting(5, failed)) < 1e-12);
  }
}

TEST_CASE("every cell of the table of replicas is within one failure of the exact one") {
  for (std::uint32_t nodes = 8; nodes <= 2048; nodes *= 2) {
    for (std::uint32_t replicas = 1; replicas <= kCopiesMax; ++replicas) {
      INFO(nodes << " nodes, " << replicas << " replicas");
      const AllowedFailures found = simulate_replicas(nodes, replicas, kAdviceSeed);
      CHECK(is_near(found.at_90, allowed(nodes, replicas, 0.9)));
      CHECK(is_near(found.at_99, allowed(nodes, replicas, 0.99)));
      CHECK(is_near(found.at_999, allowed(nodes, replicas, 0.999)));
      CHECK(found.at_999 >= replicas);  // so many are survived for certain
      CHECK(found.at_90 >= found.at_99);
      CHECK(found.at_99 >= found.at_999);
    }
  }
}

TEST_CASE("of striped copies at least all but one may fail, and a single copy survives nothing") {
  for (const std::uint32_t copies : {1U, 2U, 3U}) {
    const AllowedFailures found = simulate_striped(32, copies, 4, 1);
    CHECK(found.at_999 >= copies - 1);
    // More images than nodes to lose, and none of it on the node that wrote it.
    CHECK(found.at_90 <= simulate_replicas(32, copies, 1).at_90);
  }
  CHECK(simulate_striped(32, 1, 4, 1).at_90 == 0);
  CHECK(simulate_striped(4, 3, 8, 1).copies == 3);  // a stripe is no wider than the pool
}

TEST_CASE("a simulation with the same seed gives the same") {
  const AllowedFailures one = simulate_replicas(32, 2, 7);
  const AllowedFailures two = simulate_replicas(32, 2, 7);
  CHECK(one.at_90 == two.at_90);
  CHECK(one.at_999 == two.at_999);
}

TEST_CASE("the interval is near the one that costs least") {
  const double checkpoint = 60;
  const double mtbf = 6 * 3600;
  CHECK(std::abs(young_interval(checkpoint, mtbf) - std::sqrt(2 * 60 * 21600.0)) < 1e-9);
  double best = 1;
  for (double interval = 10; interval < mtbf; interval += 10) {
    if (slowdown(interval, checkpoint, 60, mtbf) < slowdown(best, checkpoint, 60, mtbf))
      best = interval;
  }
  CHECK(std::abs(daly_interval(checkpoint, mtbf) - best) < 0.02 * best);
  CHECK(std::abs(daly_interval(100, 40) - 40) < 1e-9);  // no time to checkpoint
  CHECK(slowdown(best, checkpoint, 60, mtbf) > 1);
}

TEST_CASE("the plot has a line for each number of copies") {
  std::vector<AllowedFailures> rows = {
      {8, 1, 1, 1, 1}, {8, 2, 2, 2, 2}, {16, 1, 1, 1, 1}, {16, 2, 3, 2, 2}};
  const std::string svg = plot_svg(rows, {{8, 1, 0, 0, 0}, {16, 1, 0, 0, 0}});
  std::size_t lines = 0;
  for (auto at = svg.find("<polyline"); at != svg.npos; at = svg.find("<polyline", at + 1)) ++lines;
  CHECK(lines == 3);
  CHECK(svg.find("nan") == svg.npos);
  CHECK(svg.ends_with("</svg>\n"));
}
