#include "tools/lab/advice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/policy/copy_scatter.h"
#include "tests/support/catch.h"
#include "tools/lab/job_plan.h"

using namespace stdchk::tools;

namespace {

/// The exact probability that every image stays readable when `failed` random nodes of `nodes`
/// fail. Each node keeps its own image, and `replicas` more copies on other random nodes. The image
/// of a live node is readable. The image of a failed node is lost when all its replicas are on
/// failed nodes. Replicas of different nodes are drawn independently.
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

/// Like all_readable() for one replica, but enumerates every placement and every loss of `failed`
/// nodes.
double all_readable_by_counting(std::uint32_t nodes, std::uint32_t failed) {
  std::uint64_t cases = 0;
  std::uint64_t good = 0;
  // holder of the replica, counted among the other nodes
  std::vector<std::uint32_t> holder(nodes, 0);
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

/// Returns true when a pool stays readable without the nodes in the bit set `lost`. A chunk is lost
/// with its first node and `copies` - 1 of the kCopyScatter nodes that take its copies.
bool is_readable(std::uint32_t lost, std::uint32_t nodes, std::uint32_t copies) {
  for (std::uint32_t primary = 0; primary < nodes; ++primary) {
    if (((lost >> primary) & 1U) == 0) continue;
    std::uint32_t lost_takers = 0;
    for (std::uint32_t other = 0; other < nodes; ++other) {
      std::size_t before = 0;
      for (std::uint32_t third = 0; third < nodes; ++third) {
        if (third == primary || other == primary) continue;
        before += stdchk::precedes_as_copy_target({primary + 1}, {third + 1}, {other + 1}) ? 1 : 0;
      }
      const bool takes = other != primary && before < stdchk::kCopyScatter;
      lost_takers += takes ? (lost >> other) & 1U : 0;
    }
    if (lost_takers >= copies - 1) return false;
  }
  return true;
}

/// Returns the largest number of failures that leave the whole pool readable in at least the
/// `share` of all cases.
std::uint32_t allowed_in_pool(std::uint32_t nodes, std::uint32_t copies, double share) {
  std::vector<std::uint64_t> cases(nodes + 1);
  std::vector<std::uint64_t> good(nodes + 1);
  for (std::uint32_t lost = 0; lost < 1U << nodes; ++lost) {
    const auto failed = static_cast<std::size_t>(std::popcount(lost));
    if (failed > 6) continue;
    ++cases[failed];
    good[failed] += is_readable(lost, nodes, copies) ? 1 : 0;
  }
  std::uint32_t failures = 0;
  while (static_cast<double>(good[failures + 1]) >=
         share * static_cast<double>(cases[failures + 1])) {
    ++failures;
  }
  REQUIRE(failures < 6);
  return failures;
}

/// Table 1 of Walters and Chaudhary, "A Fault-Tolerant Strategy for Virtualized HPC Clusters". The
/// Journal of Supercomputing 50(3), 2009. For 1, 2 and 3 replicas: the node failures that a job
/// survives with a probability of 90, 99 and 99.9 %.
struct PaperRow {
  std::uint32_t nodes;
  std::array<std::array<std::uint32_t, 3>, kCopiesMax> replicas;
};
constexpr std::array<PaperRow, 9> kPaperTable{{
    {8, {{{1, 1, 1}, {2, 2, 2}, {3, 3, 3}}}},
    {16, {{{1, 1, 1}, {2, 2, 2}, {5, 4, 3}}}},
    {32, {{{2, 1, 1}, {5, 3, 2}, {8, 5, 4}}}},
    {64, {{{3, 1, 1}, {8, 4, 2}, {14, 8, 4}}}},
    {128, {{{4, 1, 1}, {12, 6, 3}, {22, 13, 8}}}},
    {256, {{{5, 2, 1}, {19, 9, 5}, {37, 21, 13}}}},
    {512, {{{7, 2, 1}, {31, 14, 7}, {62, 35, 20}}}},
    {1024, {{{10, 3, 1}, {48, 22, 11}, {104, 58, 33}}}},
    {2048, {{{15, 5, 2}, {76, 35, 17}, {174, 97, 55}}}},
}};

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

TEST_CASE(
    "every cell of the table of replicas is within one failure of the exact one and the paper's") {
  for (const PaperRow& row : kPaperTable) {
    for (std::uint32_t replicas = 1; replicas <= kCopiesMax; ++replicas) {
      INFO(row.nodes << " nodes, " << replicas << " replicas");
      const AllowedFailures found = simulate_replicas(row.nodes, replicas, kAdviceSeed);
      const auto& [paper_90, paper_99, paper_999] = row.replicas[replicas - 1];
      CHECK(is_near(found.at_90, paper_90));
      CHECK(is_near(found.at_99, paper_99));
      CHECK(is_near(found.at_999, paper_999));
      CHECK(is_near(found.at_90, allowed(row.nodes, replicas, 0.9)));
      CHECK(is_near(found.at_99, allowed(row.nodes, replicas, 0.99)));
      CHECK(is_near(found.at_999, allowed(row.nodes, replicas, 0.999)));
      CHECK(found.at_999 >= replicas);  // this number of failures is always survived
      CHECK(found.at_90 >= found.at_99);
      CHECK(found.at_99 >= found.at_999);
    }
  }
}

TEST_CASE("a pool that places by node survives at least what the paper's placement survives") {
  for (const PaperRow& row : kPaperTable) {
    for (std::uint32_t replicas = 1; replicas <= kCopiesMax; ++replicas) {
      INFO(row.nodes << " nodes, " << replicas << " replicas");
      const AllowedFailures found = simulate_by_node(row.nodes, replicas + 1, kAdviceSeed);
      const auto& [paper_90, paper_99, paper_999] = row.replicas[replicas - 1];
      CHECK(found.copies == replicas + 1);
      CHECK(found.at_90 + 1 >= paper_90);
      CHECK(found.at_99 + 1 >= paper_99);
      CHECK(found.at_999 + 1 >= paper_999);
      CHECK(found.at_999 >= replicas);
      // Striped images with as many copies survive less.
      if (row.nodes < 32) continue;
      CHECK(found.at_90 >= simulate_pool(row.nodes, std::min(replicas + 1, 3U), 1).at_90);
    }
  }
}

TEST_CASE("of a pool's copies all but one may fail, and a single copy survives nothing") {
  for (const std::uint32_t copies : {1U, 2U, 3U}) {
    const AllowedFailures found = simulate_pool(32, copies, 1);
    CHECK(found.at_999 >= copies - 1);
    // A pool has more sets of benefactors than nodes, and the writer's own image is no copy.
    CHECK(found.at_90 <= simulate_replicas(32, copies, 1).at_90);
  }
  CHECK(simulate_pool(32, 1, 1).at_90 == 0);
  CHECK(simulate_pool(2, 3, 1).copies == 2);  // limited by the number of benefactors
}

TEST_CASE("of five benefactors any two have both copies of something, of any three all three") {
  // With five benefactors, each one's copies go to all four others.
  static_assert(stdchk::kCopyScatter == 4);
  const AllowedFailures two = simulate_pool(5, 2, 1);
  CHECK(two.at_90 == 1);
  CHECK(two.at_999 == 1);
  const AllowedFailures three = simulate_pool(5, 3, 1);
  CHECK(three.at_90 == 2);
  CHECK(three.at_999 == 2);
}

TEST_CASE("the table of a pool is what counting all ways to lose its nodes gives") {
  for (const std::uint32_t nodes : {9U, 14U, 18U}) {
    for (const std::uint32_t copies : {2U, 3U}) {
      INFO(nodes << " nodes, " << copies << " copies");
      const AllowedFailures found = simulate_pool(nodes, copies, kAdviceSeed);
      CHECK(found.at_90 == allowed_in_pool(nodes, copies, 0.9));
      CHECK(found.at_99 == allowed_in_pool(nodes, copies, 0.99));
      CHECK(found.at_999 == allowed_in_pool(nodes, copies, 0.999));
    }
  }
}

TEST_CASE("in a large pool two lost nodes take something along as often as there are pairs") {
  // Each of 1024 benefactors has copies on four others. So 2048 to 4096 of the 523776 pairs hold
  // both copies of a chunk. Among f lost nodes there is no such pair with probability of about
  // exp(-pairs f (f - 1) / 2 / 523776). So f (f - 1) is at most 26.9 to 53.9 for 90 %, and 2.6 to
  // 5.1 for 99 %. For 99.9 % it is at most .26 to .51.
  const AllowedFailures found = simulate_pool(1024, 2, kAdviceSeed);
  CHECK(found.at_90 >= 5);
  CHECK(found.at_90 <= 7);
  CHECK(found.at_99 == 2);
  CHECK(found.at_999 == 1);
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
