#include "tools/advice.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "tests/support/catch.h"

using namespace stdchk::tools;

namespace {

/// The failures that all images survive with that probability, taking the images as independent:
/// each of `groups` is lost when all its `size` nodes are among the failed ones.
std::uint32_t estimated(std::uint32_t nodes, std::uint32_t size, double probability) {
  std::uint32_t failures = 0;
  for (;;) {
    double one_lost = 1;
    for (std::uint32_t i = 0; i < size; ++i) {
      one_lost *= (failures + 1.0 - i) / (nodes - static_cast<double>(i));
    }
    if (failures + 1 >= size && std::pow(1 - one_lost, nodes) < probability) return failures;
    ++failures;
  }
}

bool is_near(std::uint32_t a, std::uint32_t b) {
  return std::abs(static_cast<int>(a) - static_cast<int>(b)) <= 1;
}

}  // namespace

TEST_CASE("the simulated replicas agree with the estimate for independent images") {
  for (const std::uint32_t nodes : {16U, 64U, 256U}) {
    for (const std::uint32_t replicas : {1U, 2U, 3U}) {
      INFO(nodes << " nodes, " << replicas << " replicas");
      const AllowedFailures found = simulate_replicas(nodes, replicas, 1);
      CHECK(is_near(found.at_90, estimated(nodes, replicas + 1, 0.9)));
      CHECK(is_near(found.at_99, estimated(nodes, replicas + 1, 0.99)));
      CHECK(is_near(found.at_999, estimated(nodes, replicas + 1, 0.999)));
      CHECK(found.at_999 >= replicas);  // so many are survived for certain
      CHECK(found.at_90 >= found.at_99);
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
