#pragma once

#include <functional>
#include <list>

#include "core/clock.h"
#include "tests/sim/swarm.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// A HeldNodes remembers which processes are stopped or cut off, and until when.
class HeldNodes {
 public:
  /// False: it is held already.
  bool hold(Node& node, Time until, bool cut);
  /// Lets those go whose time has come, or all; calls `resumed(node)` for those that were stopped.
  template <class Resumed>
  void release(Time now, bool all, Resumed resumed) {
    for (const Held& each : held_) {
      if (!all && each.until > now) continue;
      each.node->stopped = false;
      each.node->endpoint.stall(false);
      if (!each.cut) resumed(*each.node);
    }
    std::erase_if(held_, [&](const Held& each) { return all || each.until <= now; });
  }
  /// The process has died.
  void forget(const Node& node);
  bool holds(const Node& node) const;

 private:
  struct Held {
    Node* node = nullptr;
    Time until{};
    bool cut = false;
  };
  std::list<Held> held_;
};

/// A NodeFaults does to the processes of a pool what goes wrong with them alike in all simulators,
/// and counts it.
///
/// Threads: one. Draws from the numbers of the simulation.
class NodeFaults {
 public:
  NodeFaults(Cluster& cluster, Swarm& swarm, Prng& prng)
      : cluster_(cluster), swarm_(swarm), prng_(prng) {}
  /// It is stopped or cut off for some time, unless it is already.
  void hold(Event event, Node& node);
  /// It loses all its links.
  void drop(Event event, Node& node);
  void restart_manager();
  /// Another one takes its place, without its memory.
  void kill_benefactor(std::size_t index);
  /// As by SIGTERM: it goes when it may, or when its time is over.
  void leave(std::size_t index);
  /// Only while all that keep the metadata can be reached: what was answered is there then. False:
  /// no manager could be rebuilt.
  bool lose_manager_disk();
  /// The time of day in one process, of the manager's only where nothing goes by it.
  void jump_clock(bool also_manager, const std::function<Node&()>& pick_client);
  /// Which processes are stopped or cut off.
  HeldNodes& held() { return held_; }

 private:
  Cluster& cluster_;
  Swarm& swarm_;
  Prng& prng_;
  HeldNodes held_;
};

}  // namespace stdchk::sim
