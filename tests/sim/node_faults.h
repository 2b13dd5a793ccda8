#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "tests/sim/lost_bytes.h"
#include "tests/sim/swarm.h"
#include "tests/support/cluster.h"

namespace stdchk::sim {

/// A HeldNodes remembers which processes are stopped or cut off, and until when.
class HeldNodes {
 public:
  /// False: it is held already. With `from` it is cut off from that address alone, or also from
  /// that.
  bool hold(Node& node, Time until, bool cut, const std::string& from = {});
  /// Lets those go whose time has come, or all; calls `resumed(node)` for those that were stopped.
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
  /// The process has died.
  void forget(const Node& node);
  bool holds(const Node& node) const;

 private:
  struct Held {
    Node* node = nullptr;
    Time until{};
    bool cut = false;
    std::string from;  ///< empty: from all
  };
  std::list<Held> held_;
};

/// A NodeFaults does to the processes of a pool what goes wrong with them alike in all simulators,
/// and counts it.
///
/// Threads: one. Draws from the numbers of the simulation.
class NodeFaults {
 public:
  NodeFaults(Cluster& cluster, Swarm& swarm, Prng& prng, LostBytes& lost)
      : cluster_(cluster), swarm_(swarm), prng_(prng), lost_(lost) {
    cluster_.set_on_end([this](const Node& node) { held_.forget(node); });
  }
  ~NodeFaults() { cluster_.set_on_end({}); }
  NodeFaults(const NodeFaults&) = delete;
  NodeFaults& operator=(const NodeFaults&) = delete;
  /// It is stopped or cut off for some time, unless it is already.
  void hold(Event event, Node& node);
  /// It loses all its links.
  void drop(Event event, Node& node);
  void restart_manager();
  /// Another one takes its place, without its memory.
  void kill_benefactor(std::size_t index);
  /// As by SIGTERM: it goes when it may, or when its time is over.
  void leave(std::size_t index);
  /// Only while all that keep the metadata can be reached: what was answered is there then. Where
  /// there may be a standby, only while that follows; it takes over. False: there is no manager
  /// afterwards.
  bool lose_manager_disk();
  /// The manager is restarted without the end of its journal, of which a benefactor knows, and then
  /// rebuilt. Only where there can be no standby, and as above; nothing else may go wrong
  /// meanwhile. False: nobody found out, or there is no manager afterwards.
  bool damage_journal();
  /// From its standby, from all benefactors or some, and from some of these.
  void part_manager(const std::vector<Node*>& clients);
  /// One of the kinds that are about standbys, when it can be.
  void trouble_standby(Event event);
  /// At each step: where there is no standby and may be one, it is started before long.
  void tend_standby();
  /// When faults have stopped: a manager that was told of a later one ends, and a standby follows.
  /// False: one does not end.
  bool settle_managers();
  /// The time of day in one process, of the manager's only where nothing goes by it.
  void jump_clock(bool also_manager, const std::function<Node&()>& pick_client);
  /// Which processes are stopped or cut off.
  HeldNodes& held() { return held_; }
  /// A process was not to be reached at that time, or later, or others had not found out yet that
  /// it can be reached again.
  bool troubled_since(Time time) const { return troubled_ >= time || deaths_since(time) > 0; }
  /// A benefactor that lives was not to be reached by the manager then, or later, or shortly
  /// before.
  bool hidden_since(Time time) const { return hidden_ >= time; }
  /// How many benefactors have ended at that time, or later, or shortly before.
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
  Time troubled_{};  ///< until then
  Time hidden_{};
  std::vector<Time> deaths_;  ///< of benefactors: until when others may not have found out
};

}  // namespace stdchk::sim
