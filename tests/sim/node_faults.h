#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tests/sim/lost_bytes.h"
#include "tests/sim/swarm.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// A HeldNodes remembers which processes are stopped or cut off, and until when.
class HeldNodes {
 public:
  /// Stops a process or cuts it off. With `from`, cuts it off from that address only; repeated
  /// calls add addresses. False: the process is held already.
  bool hold(Node& node, Time until, bool cut, const std::string& from = {});
  /// Releases the processes whose time has come, or all. Calls `resumed(node)` for those that were
  /// stopped.
  template <class Resumed>
  void release(Time now, bool all, Resumed resumed) {
    for (const Held& each : held_) {
      if (!all && each.until > now) continue;
      if (!each.from.empty()) {
        each.node->endpoint.stall_to(each.from, false);
      } else if (each.cut) {
        each.node->endpoint.stall(false);
      } else {
        each.node->stopped = false;
        resumed(*each.node);
      }
    }
    std::erase_if(held_, [&](const Held& each) { return all || each.until <= now; });
  }
  /// Forgets a process that has died.
  void forget(const Node& node);
  bool holds(const Node& node) const;

 private:
  struct Held {
    Node* node = nullptr;
    Time until{};
    bool cut = false;
    std::string from;  ///< empty: cut off from all
  };
  std::list<Held> held_;
};

/// A NodeFaults injects the faults of processes that all simulators share, and counts them.
///
/// Threads: one. Draws random numbers from the simulation's generator.
class NodeFaults {
 public:
  NodeFaults(Cluster& cluster, Swarm& swarm, Prng& prng, LostBytes& lost)
      : cluster_(cluster), swarm_(swarm), prng_(prng), lost_(lost) {
    cluster_.set_on_end([this](const Node& node) { held_.forget(node); });
  }
  ~NodeFaults() { cluster_.set_on_end({}); }
  NodeFaults(const NodeFaults&) = delete;
  NodeFaults& operator=(const NodeFaults&) = delete;
  /// Stops or cuts off the process for a random time, unless it is held already.
  void hold(Event event, Node& node);
  /// Breaks all links of the process.
  void drop(Event event, Node& node);
  void restart_manager();
  /// Replaces the benefactor by a new one with an empty memory.
  void kill_benefactor(std::size_t index);
  /// Ends the benefactor as SIGTERM does: when the manager allows it, or after a time limit.
  void leave(std::size_t index);
  /// Destroys the manager's disk, and rebuilds the manager or lets the standby take over. Does so
  /// only while all holders of the metadata are reachable: all answered commands survive then. With
  /// standbys, waits for one that follows. False: no manager runs afterwards.
  bool lose_manager_disk();
  /// Restarts the manager without the end of its journal, which a benefactor knows, and rebuilds
  /// it. Requires that no standby exists and all benefactors are reachable. No other fault may
  /// happen meanwhile. False: the damage stayed unnoticed, or no manager runs afterwards.
  bool damage_journal();
  /// Parts the manager from its standby, from all benefactors or a subset, and from a subset of
  /// `clients`.
  void part_manager(const std::vector<Node*>& clients);
  /// Injects a fault of the standby kinds, if it is possible now.
  void trouble_standby(Event event);
  /// Call this at each step. Starts a standby after a random time where one is allowed and missing.
  void tend_standby();
  /// Call this after faults have stopped. A manager that learned of its successor must end, and a
  /// standby starts. False: such a manager does not end.
  bool settle_managers();
  /// Jumps the time of day of one process. `also_manager`: nothing in this seed depends on the
  /// manager's time of day.
  void jump_clock(bool also_manager, const std::function<Node&()>& pick_client);
  /// The processes that are stopped or cut off.
  HeldNodes& held() { return held_; }
  /// Whether a process was unreachable at that time or later, or its return was not yet noticed.
  bool troubled_since(Time time) const { return troubled_ >= time || deaths_since(time) > 0; }
  /// Whether the manager could not reach a live benefactor at, after or shortly before that time.
  bool hidden_since(Time time) const { return hidden_ >= time; }
  /// How many benefactors have ended at, after or shortly before that time.
  std::size_t deaths_since(Time time) const;

 private:
  bool all_at_hand() const;
  bool lose_manager();
  void end_benefactor(std::size_t index, std::optional<Time> left);
  void trouble(Time until);
  void hide(Time until);
  Duration draw_time(Duration most);

  Cluster& cluster_;
  Swarm& swarm_;
  Prng& prng_;
  LostBytes& lost_;
  HeldNodes held_;
  Time troubled_{};  ///< a process is unreachable until then
  Time hidden_{};
  /// for each dead benefactor: when all other processes have noticed its death
  std::vector<Time> deaths_;
};

}  // namespace stdchk::sim
