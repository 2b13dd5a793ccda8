#include "tests/sim/node_faults.h"

#include <algorithm>
#include <chrono>

#include "manager/log_keepers.h"

namespace stdchk::sim {
namespace {

using namespace std::chrono_literals;

/// Longer than a lease.
constexpr Duration kStopMax = 25s;
constexpr Duration kCutMax = 12s;
constexpr Duration kLeaveMax = 10s;

}  // namespace

bool HeldNodes::hold(Node& node, Time until, bool cut) {
  if (holds(node)) return false;
  if (cut) {
    node.endpoint.stall(true);
  } else {
    node.stopped = true;
  }
  held_.push_back({&node, until, cut});
  return true;
}

void HeldNodes::forget(const Node& node) {
  std::erase_if(held_, [&](const Held& each) { return each.node == &node; });
}

bool HeldNodes::holds(const Node& node) const {
  return std::ranges::any_of(held_, [&](const Held& each) { return each.node == &node; });
}

void NodeFaults::hold(Event event, Node& node) {
  const bool cut =
      event == Event::kCutClient || event == Event::kCutBenefactor || event == Event::kCutManager;
  const Duration most = cut ? kCutMax : kStopMax;
  const Duration time(
      static_cast<Duration::rep>(prng_.below(static_cast<std::uint64_t>(most.count()))));
  if (held_.hold(node, cluster_.now() + time, cut)) swarm_.happened(event);
}

void NodeFaults::drop(Event event, Node& node) {
  node.endpoint.drop_links();
  swarm_.happened(event);
}

void NodeFaults::restart_manager() {
  // In the middle of writing, as often as not.
  if (prng_.chance(1, 2)) cluster_.run_until([&] { return cluster_.unsynced() > 0; }, 1s);
  held_.forget(cluster_.manager_node());
  cluster_.kill_manager();
  cluster_.start_manager();
  swarm_.happened(Event::kRestartManager);
}

void NodeFaults::kill_benefactor(std::size_t index) {
  held_.forget(*cluster_.benefactors()[index].node);
  cluster_.kill_benefactor(index);
  cluster_.add_benefactor();
}

void NodeFaults::leave(std::size_t index) {
  auto may_go = std::make_shared<bool>(false);
  cluster_.benefactors()[index].service->leave([may_go] { *may_go = true; });
  cluster_.run_until([&] { return *may_go; }, kLeaveMax);
  kill_benefactor(index);
  swarm_.happened(Event::kLeave);
}

bool NodeFaults::lose_manager_disk() {
  for (const auto& each : cluster_.benefactors()) {
    if (held_.holds(*each.node)) return true;
  }
  if (cluster_.manager()->log_keepers().count() == 0) return true;
  held_.forget(cluster_.manager_node());
  swarm_.happened(Event::kLoseManagerDisk);
  return cluster_.rebuild_manager();
}

void NodeFaults::jump_clock(bool also_manager, const std::function<Node&()>& pick_client) {
  auto& benefactors = cluster_.benefactors();
  const std::uint64_t which = prng_.below(3);
  if (which == 0 && !also_manager) return;
  Node& node = which == 0   ? cluster_.manager_node()
               : which == 1 ? *benefactors[prng_.below(benefactors.size())].node
                            : pick_client();
  node.clock.jump(swarm_.draw_jump());
  swarm_.happened(Event::kJumpClock);
}

}  // namespace stdchk::sim
