#include "tools/lab/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/base/clock.h"
#include "core/policy/copy_scatter.h"

namespace stdchk::tools {
namespace {

/// At 99.9 %, 60 trials remain on the other side.
constexpr std::uint32_t kTrials = 60'000;

using Nodes = std::vector<std::uint32_t>;

/// Draws `count` different numbers below `nodes`, except `except`.
void draw(Prng& prng, std::uint32_t nodes, std::uint32_t except, std::uint32_t count, Nodes& out) {
  out.clear();
  while (out.size() < count) {
    const auto drawn = static_cast<std::uint32_t>(prng.below(nodes));
    if (drawn != except && std::ranges::find(out, drawn) == out.end()) out.push_back(drawn);
  }
}

/// The placement of all chunks: groups of nodes of which one must live.
struct Placement {
  std::vector<Nodes> groups_of;  ///< indices of groups, by node
  std::uint32_t groups = 0;
  std::uint32_t group_size = 0;
};

/// Draws a random order of failures. Returns how many precede the first that takes a group's last
/// member. `order` has all nodes; `lost` has zeros, one for each group, also after the call.
std::uint32_t failures_survived(Prng& prng, const Placement& placement, Nodes& order, Nodes& lost) {
  const auto nodes = static_cast<std::uint32_t>(order.size());
  std::uint32_t failures = 0;
  for (bool whole = true; whole && failures < nodes; ++failures) {
    std::swap(order[failures], order[failures + prng.below(nodes - failures)]);
    for (const std::uint32_t group : placement.groups_of[order[failures]]) {
      whole &= ++lost[group] < placement.group_size;
    }
  }
  for (std::uint32_t i = 0; i < failures; ++i) {
    for (const std::uint32_t group : placement.groups_of[order[i]]) lost[group] = 0;
  }
  return failures - 1;  // excludes the fatal last failure
}

/// `place` fills an empty placement. Each placement serves for `orders` orders of failures; use
/// more orders where a placement costs more.
template <class Place>
AllowedFailures simulate(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed,
                         std::uint32_t orders, const Place& place) {
  Prng prng(seed + nodes * 131ULL + copies);
  Nodes order(nodes);
  std::iota(order.begin(), order.end(), 0U);
  Nodes lost;
  Placement placement;
  std::vector<std::uint32_t> results(kTrials);
  for (std::uint32_t trial = 0; trial < kTrials; ++trial) {
    if (trial % orders == 0) {
      placement.groups_of.assign(nodes, {});
      placement.groups = 0;
      place(prng, placement);
      lost.assign(placement.groups, 0);
    }
    results[trial] = failures_survived(prng, placement, order, lost);
  }
  std::ranges::sort(results);
  // The number of failures that at least this share of the trials survived.
  const auto at = [&](double share) {
    return results[static_cast<std::size_t>((1 - share) * kTrials)];
  };
  return {nodes, copies, at(0.9), at(0.99), at(0.999)};
}

/// The first `most` nodes that get copies of the node `primary`'s chunks. A new pool numbers its
/// benefactors from 1.
Nodes takers_of(std::uint32_t primary, std::uint32_t nodes, std::size_t most) {
  const auto id = [](std::uint32_t node) { return BenefactorId{node + 1}; };
  Nodes others(nodes);
  std::iota(others.begin(), others.end(), 0U);
  others.erase(others.begin() + primary);
  const auto count = std::min(most, others.size());
  std::ranges::partial_sort(others, others.begin() + static_cast<std::ptrdiff_t>(count),
                            [&](std::uint32_t a, std::uint32_t b) {
                              return precedes_as_copy_target(id(primary), id(a), id(b));
                            });
  others.resize(count);
  return others;
}

/// Calls `visit` with each way to choose `count` of `from`.
template <class Visit>
void for_each_choice(const Nodes& from, std::uint32_t count, const Visit& visit) {
  std::vector<bool> taken(from.size());
  std::fill(taken.begin(), taken.begin() + count, true);
  do {
    Nodes chosen;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (taken[i]) chosen.push_back(from[i]);
    }
    visit(chosen);
  } while (std::prev_permutation(taken.begin(), taken.end()));
}

}  // namespace

AllowedFailures simulate_replicas(std::uint32_t nodes, std::uint32_t replicas, std::uint64_t seed) {
  replicas = std::min(replicas, nodes - 1);
  Nodes drawn;
  const std::uint32_t orders = std::max(1U, nodes / 8);
  return simulate(nodes, replicas, seed, orders, [&](Prng& prng, Placement& placement) {
    placement.group_size = replicas + 1;
    placement.groups = nodes;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      draw(prng, nodes, node, replicas, drawn);
      placement.groups_of[node].push_back(node);
      for (const std::uint32_t holder : drawn) placement.groups_of[holder].push_back(node);
    }
  });
}

AllowedFailures simulate_pool(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed) {
  copies = std::min(copies, nodes);
  return simulate(nodes, copies, seed, kTrials, [&](Prng&, Placement& placement) {
    placement.group_size = copies;
    for (std::uint32_t primary = 0; primary < nodes; ++primary) {
      const Nodes others = takers_of(primary, nodes, kCopyScatter);
      for_each_choice(others, copies - 1, [&](const Nodes& chosen) {
        placement.groups_of[primary].push_back(placement.groups);
        for (const std::uint32_t node : chosen) {
          placement.groups_of[node].push_back(placement.groups);
        }
        ++placement.groups;
      });
    }
  });
}

AllowedFailures simulate_by_node(std::uint32_t nodes, std::uint32_t copies, std::uint64_t seed) {
  copies = std::min(copies, nodes);
  return simulate(nodes, copies, seed, kTrials, [&](Prng&, Placement& placement) {
    placement.group_size = copies;
    placement.groups = nodes;
    for (std::uint32_t node = 0; node < nodes; ++node) {
      placement.groups_of[node].push_back(node);
      for (const std::uint32_t holder : takers_of(node, nodes, copies - 1)) {
        placement.groups_of[holder].push_back(node);
      }
    }
  });
}

double young_interval(double checkpoint_s, double mtbf_s) {
  return std::sqrt(2 * checkpoint_s * mtbf_s);
}

double daly_interval(double checkpoint_s, double mtbf_s) {
  if (checkpoint_s >= 2 * mtbf_s) return mtbf_s;
  const double ratio = checkpoint_s / (2 * mtbf_s);
  return young_interval(checkpoint_s, mtbf_s) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         checkpoint_s;
}

double slowdown(double interval_s, double checkpoint_s, double restart_s, double mtbf_s) {
  return mtbf_s * std::exp(restart_s / mtbf_s) * std::expm1((interval_s + checkpoint_s) / mtbf_s) /
         interval_s;
}

namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 420;
constexpr double kMargin = 50;

/// Both axes are logarithmic: nodes from 8, failures from 1 (0 lies below the axis).
struct Scale {
  double nodes_max = 8;
  double failures_max = 1;
  double x(double nodes) const {
    return kMargin +
           (kWidth - 2 * kMargin) * std::log2(nodes / 8) / std::max(1.0, std::log2(nodes_max / 8));
  }
  double y(double failures) const {
    const double share = std::log2(std::max(failures, 0.5) * 2) / std::log2(failures_max * 2);
    return kHeight - kMargin - (kHeight - 2 * kMargin) * share;
  }
};

void draw_lines(const std::vector<AllowedFailures>& table, const Scale& scale, const char* style,
                const char* what, std::string& svg) {
  static constexpr const char* kColours[] = {"#1b6ca8", "#c8553d", "#3d8b37", "#7a4fa3"};
  std::map<std::uint32_t, std::string> points;
  std::map<std::uint32_t, AllowedFailures> last;
  for (const auto& row : table) {
    points[row.copies] += fmt::format("{:.1f},{:.1f} ", scale.x(row.nodes), scale.y(row.at_99));
    last[row.copies] = row;
  }
  for (const auto& [copies, line] : points) {
    const char* colour = kColours[copies % std::size(kColours)];
    svg +=
        fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" {} points=\"{}\"/>\n",
                    colour, style, line);
    svg += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" text-anchor=\"end\">{} {}</text>\n",
        scale.x(last[copies].nodes), scale.y(last[copies].at_99) - 4, colour, copies, what);
  }
}

}  // namespace

std::string plot_svg(const std::vector<AllowedFailures>& replicas,
                     const std::vector<AllowedFailures>& pool) {
  Scale scale;
  for (const auto* table : {&replicas, &pool}) {
    for (const auto& row : *table) {
      scale.nodes_max = std::max<double>(scale.nodes_max, row.nodes);
      scale.failures_max = std::max<double>(scale.failures_max, row.at_99);
    }
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\">node failures that leave every image readable with 99 %, against "
      "the "
      "number of nodes</text>\n",
      kWidth, kHeight, kMargin);
  for (double nodes = 8; nodes <= scale.nodes_max; nodes *= 2) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n",
                       scale.x(nodes), kHeight - kMargin + 16, nodes);
  }
  for (double failures = 1; failures <= scale.failures_max; failures *= 2) {
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>\n",
                       kMargin - 6, scale.y(failures) + 4, failures);
  }
  draw_lines(replicas, scale, "", "whole replicas", svg);
  draw_lines(pool, scale, "stroke-dasharray=\"5,4\"", "copies, pool", svg);
  return svg + "</svg>\n";
}

}  // namespace stdchk::tools
