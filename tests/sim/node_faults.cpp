#include "tests/sim/node_faults.h"

#include <algorithm>
#include <chrono>

#include "manager/recovery/log_replicas.h"
#include "tests/sim/checkers.h"

namespace stdchk::sim {
namespace {

using namespace std::chrono_literals;

/// Longer than a lease.
constexpr Duration kStopMax = 25s;
constexpr Duration kCutMax = 12s;
constexpr Duration kLeaveMax = 10s;
/// How long a standby waits before it takes over from a silent manager.
constexpr Duration kSilence = 5s;
/// How long it takes until the standby knows a change of the benefactors that form its quorum.
constexpr Duration kStandbyTold = 2s;
constexpr Duration kTakeOverMax = 60s;
/// How long it takes until all processes know each other's addresses again.
constexpr Duration kRecovered = 20s;

}  // namespace

bool HeldNodes::hold(Node& node, Time until, bool cut, const std::string& from) {
  if (holds(node)) return false;
  if (!from.empty()) {
    node.endpoint.stall_to(from, true);
  } else if (cut) {
    node.endpoint.stall(true);
  } else {
    node.stopped = true;
  }
  held_.push_back({&node, until, cut, from});
  return true;
}

void HeldNodes::forget(const Node& node) {
  std::erase_if(held_, [&](const Held& each) { return each.node == &node; });
}

bool HeldNodes::holds(const Node& node) const {
  return std::ranges::any_of(held_, [&](const Held& each) { return each.node == &node; });
}

void NodeFaults::hold(Event event, Node& node) {
  const bool cut = event == Event::kCutClient || event == Event::kCutBenefactor ||
                   event == Event::kCutManager || event == Event::kCutStandby;
  const Time until = cluster_.now() + draw_time(cut ? kCutMax : kStopMax);
  if (!held_.hold(node, until, cut)) return;
  trouble(until);
  if (event != Event::kStopClient && event != Event::kCutClient) hide(until);
  swarm_.happened(event);
}

void NodeFaults::trouble(Time until) { troubled_ = std::max(troubled_, until + kRecovered); }

void NodeFaults::hide(Time until) {
  trouble(until);
  hidden_ = std::max(hidden_, until + kRecovered);
}

Duration NodeFaults::draw_time(Duration most) {
  return Duration(
      static_cast<Duration::rep>(prng_.below(static_cast<std::uint64_t>(most.count()))));
}

void NodeFaults::drop(Event event, Node& node) {
  node.endpoint.drop_links();
  trouble(cluster_.now());
  swarm_.happened(event);
}

void NodeFaults::restart_manager() {
  // Half of the restarts hit unsynced commands.
  if (prng_.chance(1, 2)) cluster_.run_until([&] { return cluster_.unsynced() > 0; }, 1s);
  cluster_.restart_manager();
  trouble(cluster_.now());
  swarm_.happened(Event::kRestartManager);
}

void NodeFaults::kill_benefactor(std::size_t index) { end_benefactor(index, std::nullopt); }

void NodeFaults::end_benefactor(std::size_t index, std::optional<Time> left) {
  lost_.benefactor_ends(index, left);
  cluster_.kill_benefactor(index);
  cluster_.add_benefactor();
  deaths_.push_back(cluster_.now() + kRecovered);
}

std::size_t NodeFaults::deaths_since(Time time) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(deaths_, [time](Time until) { return until >= time; }));
}

void NodeFaults::leave(std::size_t index) {
  const Time began = cluster_.now();
  auto may_go = std::make_shared<std::optional<bool>>();
  cluster_.benefactors()[index].service->leave([may_go](bool done) {
    if (!may_go->has_value()) *may_go = done;
  });
  cluster_.run_until([&] { return may_go->has_value(); }, kLeaveMax);
  end_benefactor(index, may_go->value_or(false) ? std::optional(began) : std::nullopt);
  swarm_.happened(Event::kLeave);
}

/// Whether all benefactors can be reached, and a live one holds a metadata log. The manager may not
/// have noticed a death.
bool NodeFaults::all_at_hand() const {
  for (const auto& each : cluster_.benefactors()) {
    if (held_.holds(*each.node)) return false;
  }
  return std::ranges::any_of(
      cluster_.manager()->planners().logs.complete_replicas(),
      [this](BenefactorId id) { return find_benefactor(cluster_, id) != nullptr; });
}

bool NodeFaults::lose_manager_disk() {
  if (!all_at_hand()) return true;
  if (cluster_.may_stand_by()) return lose_manager();
  swarm_.happened(Event::kLoseManagerDisk);
  const bool rebuilt = cluster_.rebuild_manager();
  hide(cluster_.now());
  return rebuilt;
}

bool NodeFaults::damage_journal() {
  if (cluster_.may_stand_by() || !all_at_hand()) return true;
  std::uint64_t known = 0;
  for (const auto& each : cluster_.benefactors()) {
    if (each.service->epoch() != cluster_.manager()->state().epoch()) continue;
    known = std::max(known, each.service->newest_sequence());
  }
  // A crash loses commands that are not durable anyway, perhaps a snapshot among them.
  const std::uint64_t durable =
      cluster_.manager()->pool().journal().appended() - cluster_.unsynced() + 1;
  if (known == 0) return true;
  const std::uint64_t lost = durable - known + 1 + prng_.below(std::min<std::uint64_t>(known, 20));
  if (lost > cluster_.journal().after_snapshot()) return true;
  swarm_.happened(Event::kDamageJournal);
  cluster_.restart_manager_without(lost);
  trouble(cluster_.now());
  hidden_ = troubled_;
  if (!cluster_.run_until([&] { return cluster_.manager_is_damaged(); }, kRecovered)) return false;
  return cluster_.rebuild_manager();
}

bool NodeFaults::lose_manager() {
  const auto may_be_lost = [&] {
    ManagerNode* const standby = cluster_.standby();
    return standby != nullptr && standby->follows() && !held_.holds(standby->node()) &&
           !held_.holds(cluster_.manager_node()) &&
           cluster_.manager()->planners().logs.count() == limits::kLogCopies;
  };
  if (!may_be_lost()) return true;
  cluster_.run_for(kStandbyTold);
  if (!may_be_lost()) return true;
  swarm_.happened(Event::kLoseManagerDisk);
  cluster_.kill_manager(prng_.chance(1, 2));
  const bool taken =
      cluster_.run_until([&] { return cluster_.manager() != nullptr; }, kTakeOverMax);
  hide(cluster_.now());
  return taken;
}

void NodeFaults::part_manager(const std::vector<Node*>& clients) {
  if (!cluster_.may_stand_by()) return;
  const std::string from = cluster_.manager_node().endpoint.address();
  const Time until = cluster_.now() + draw_time(kStopMax);
  std::vector<Node*> parted;
  if (ManagerNode* const standby = cluster_.standby()) parted.push_back(&standby->node());
  const bool all = prng_.chance(1, 2);
  for (const auto& each : cluster_.benefactors()) {
    if (all || prng_.chance(1, 2)) parted.push_back(each.node.get());
  }
  for (Node* const each : clients) {
    if (prng_.chance(1, 2)) parted.push_back(each);
  }
  bool any = false;
  for (Node* const each : parted) any |= held_.hold(*each, until, true, from);
  if (!any) return;
  hide(until);
  swarm_.happened(Event::kPartManager);
}

void NodeFaults::trouble_standby(Event event) {
  if (event == Event::kStartOldManager) {
    if (!cluster_.can_start_old_manager()) return;
    cluster_.start_old_manager();
    return swarm_.happened(event);
  }
  ManagerNode* const standby = cluster_.standby();
  if (standby == nullptr) return;
  if (event != Event::kKillStandby) return hold(event, standby->node());
  cluster_.kill_second_manager();
  swarm_.happened(event);
}

void NodeFaults::tend_standby() {
  if (!cluster_.may_stand_by() || cluster_.has_second_manager() || !prng_.chance(1, 20)) return;
  cluster_.start_standby(kSilence);
}

bool NodeFaults::settle_managers() {
  if (!cluster_.may_stand_by()) return true;
  const auto alone = [&] {
    return !cluster_.has_second_manager() || cluster_.standby() != nullptr;
  };
  const bool ended = cluster_.run_until(alone, kTakeOverMax);
  // A manager restarted after its own take-over does not announce itself.
  const bool tells = cluster_.manager_announces();
  if (!ended) cluster_.kill_second_manager();
  if (cluster_.standby() == nullptr) cluster_.start_standby(kSilence);
  return ended || !tells;
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
