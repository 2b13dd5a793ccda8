#include "container/job/job.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "container/job/checkpoint_book.h"
#include "core/base/clock.h"
#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

using msg::NodeStep;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A World is nodes that do what a Job asks for, in simulated time, and break in any way.
///
/// Checks at each action: no container runs twice, also not on a lost node. Containers are loaded
/// from committed sets only.
class World {
 public:
  World(std::uint64_t seed, const JobLimits& limits, std::uint32_t boxes, std::uint32_t nodes,
        std::uint32_t spares)
      : prng_(seed), limits_(limits), job_(limits, boxes, nodes, spares), boxes_(boxes) {
    clock_.advance(seconds(1));
    for (NodeId node = 0; node < nodes; ++node) nodes_[node];
  }

  Job& job() { return job_; }
  Time now() const { return clock_.now(); }
  bool is_up(NodeId node) const { return nodes_.at(node).up; }
  bool running() const {
    return std::ranges::all_of(job_.placement(), [this](const auto& placed) {
      return nodes_.at(placed.second).running.count(placed.first) > 0;
    });
  }

  double fail_steps = 0;    ///< probability that a step is answered by an error
  double ignore_steps = 0;  ///< probability that a step is never answered
  bool full = false;        ///< the pool takes no images
  std::set<SetId> committed;
  std::vector<CheckpointAction> checkpoints;
  std::vector<RunsAction> runs;
  std::optional<EndAction> end;

  void crash(NodeId node) {
    nodes_[node].up = false;
    nodes_[node].running.clear();
    job_.on_node_lost(now(), node, "the link is lost");
    carry_out();
  }
  /// The node lives, and nobody hears of it: it ends its containers when the lease is over.
  void cut_off(NodeId node) {
    nodes_[node].up = false;
    if (!nodes_[node].ends_at) nodes_[node].ends_at = now() + limits_.lease;
    job_.on_node_lost(now(), node, "it does not answer");
    carry_out();
  }

  void carry_out() {
    for (auto actions = job_.take_actions(); !actions.empty(); actions = job_.take_actions()) {
      for (const Action& action : actions) {
        REQUIRE_FALSE(end.has_value());
        std::visit([this](const auto& one) { take(one); }, action);
      }
    }
    // The coordinator asks a lost node no more, so that its lease ends.
    for (auto& [id, node] : nodes_) {
      if (job_.alive().count(id) == 0 && !node.ends_at) node.ends_at = now() + limits_.lease;
    }
  }

  void advance(Duration by) {
    const Time until = now() + by;
    while (!end) {
      Time next = std::min(until, job_.next_time());
      if (!events_.empty()) next = std::min(next, events_.begin()->first);
      clock_.advance_to(std::max(next, now()));
      for (auto& [id, node] : nodes_) {
        if (!node.ends_at || now() < *node.ends_at) continue;
        node.up = false;
        node.running.clear();
        node.stopped.clear();
      }
      if (!events_.empty() && events_.begin()->first <= now()) {
        const auto event = events_.begin()->second;
        events_.erase(events_.begin());
        event();
      } else if (job_.next_time() <= now()) {
        job_.on_time(now());
      } else if (now() >= until) {
        return;
      }
      carry_out();
    }
  }

 private:
  struct SimNode {
    bool up = true;
    std::optional<Time> ends_at;
    std::set<BoxId> running;
    std::set<BoxId> stopped;
    Time busy_until{};  ///< a node takes one step after the other
  };

  bool chance(double probability) {
    return static_cast<double>(prng_.next() % 10'000) < probability * 10'000;
  }
  void later(std::function<void()> event) {
    events_.emplace(now() + milliseconds(1 + prng_.next() % 300), std::move(event));
  }

  void take(const StepAction& action) {
    SimNode& node = nodes_[action.node];
    if (action.step == NodeStep::kLoad) REQUIRE(committed.count(action.set) == 1);
    if (action.step == NodeStep::kLoad || action.step == NodeStep::kStart) check_alone(action);
    if (!node.up || chance(ignore_steps)) return;
    const bool fails = chance(fail_steps) || (full && action.step == NodeStep::kStore);
    node.busy_until = std::max(node.busy_until, now()) + milliseconds(1 + prng_.next() % 300);
    events_.emplace(node.busy_until, [this, action, fails] {
      SimNode& there = nodes_[action.node];
      if (!there.up) return;
      if (!fails) apply(there, action);
      job_.on_answer(now(), action.node, action.step, action.set, fails ? "broken" : "");
    });
  }

  /// Checks that no other node runs the containers that the step makes.
  void check_alone(const StepAction& action) {
    for (const BoxId box : action.boxes) {
      for (const auto& [id, node] : nodes_) {
        if (id != action.node) REQUIRE(node.running.count(box) == 0);
      }
    }
  }

  void apply(SimNode& node, const StepAction& action) {
    if (action.step == NodeStep::kStart || action.step == NodeStep::kLoad) {
      node.running.insert(action.boxes.begin(), action.boxes.end());
    }
    if (action.step == NodeStep::kRemove) {
      if (action.boxes.empty()) node.running.clear();
      for (const BoxId box : action.boxes) node.running.erase(box);
    }
    if (action.step == NodeStep::kStop) node.stopped = node.running;
    if (action.step == NodeStep::kResume || action.step == NodeStep::kRemove) node.stopped.clear();
    if (action.step == NodeStep::kStore) images_[action.set] += action.boxes.size();
  }

  void take(const CommitAction& action) {
    REQUIRE(images_[action.set] == boxes_);
    const bool fails = chance(fail_steps);
    later([this, set = action.set, fails] {
      if (!fails) committed.insert(set);
      job_.on_committed(now(), set, fails ? "no space" : "");
    });
  }
  void take(const DropAction& action) {
    REQUIRE(job_.newest() != action.set);
    committed.erase(action.set);
  }
  void take(const CheckpointAction& action) { checkpoints.push_back(action); }
  void take(const RunsAction& action) {
    REQUIRE(running());
    for (const auto& [id, node] : nodes_) REQUIRE(node.stopped.empty());
    runs.push_back(action);
  }
  void take(const SayAction&) {}
  void take(const EndAction& action) { end = action; }

  Prng prng_;
  const JobLimits limits_;
  ManualClock clock_;
  Job job_;
  const std::uint32_t boxes_;
  std::map<NodeId, SimNode> nodes_;
  std::map<SetId, std::size_t> images_;
  std::multimap<Time, std::function<void()>> events_;
};

World started(std::uint64_t seed = 1, std::uint32_t spares = 0, JobLimits limits = {}) {
  return {seed, limits, 5, 3, spares};
}

void begin(World& world) {
  world.job().begin(world.now());
  world.carry_out();
  world.advance(seconds(2));
  REQUIRE(world.job().running());
}

void checkpoint(World& world) {
  world.job().want_checkpoint(world.now());
  world.carry_out();
  world.advance(seconds(10));
}

TEST_CASE("a checkpoint is complete when all images and the description are in the pool") {
  World world = started();
  begin(world);
  checkpoint(world);
  REQUIRE(world.checkpoints.size() == 1);
  CHECK(world.checkpoints[0].taken);
  CHECK(world.job().newest() == 1);
  CHECK(world.committed == std::set<SetId>{1});
  CHECK(world.checkpoints[0].pause < world.checkpoints[0].complete);
  CHECK(world.job().running());
}

TEST_CASE("a node that does not answer makes a checkpoint be given up, and the old set stands") {
  World world = started();
  begin(world);
  checkpoint(world);
  world.ignore_steps = 1;
  world.job().want_checkpoint(world.now());
  world.carry_out();
  world.advance(seconds(5));
  world.ignore_steps = 0;
  world.advance(seconds(30));
  REQUIRE(world.checkpoints.size() == 2);
  CHECK_FALSE(world.checkpoints[1].taken);
  CHECK(world.job().newest() == 1);
  CHECK(world.job().running());
  CHECK(world.running());
}

TEST_CASE("a full pool costs a checkpoint and not the job") {
  World world = started();
  begin(world);
  world.full = true;
  checkpoint(world);
  REQUIRE(world.checkpoints.size() == 1);
  CHECK_FALSE(world.checkpoints[0].taken);
  CHECK(world.job().newest() == 0);
  CHECK(world.job().running());
  world.full = false;
  checkpoint(world);
  CHECK(world.job().newest() == 2);
}

TEST_CASE("a lost node's containers go on elsewhere from the newest complete set") {
  World world = started(3, 1);
  begin(world);
  checkpoint(world);
  world.crash(0);
  world.advance(seconds(60));
  REQUIRE(world.runs.size() == 2);
  CHECK(world.runs[1].set == 1);
  CHECK(world.job().restarts() == 1);
  for (const auto& [box, node] : world.job().placement()) CHECK(node != 0);
  CHECK(world.running());
}

TEST_CASE("after a restart from an older set, new sets have numbers above all that there are") {
  World world = started();
  world.committed = {3, 5};
  world.job().begin_from(world.now(), 3, 5);
  world.carry_out();
  world.advance(seconds(2));
  REQUIRE(world.runs.size() == 1);
  CHECK(world.runs[0].set == 3);
  checkpoint(world);
  CHECK(world.job().newest() == 6);
}

TEST_CASE("a lost spare node is no reason to restart") {
  World world = started(3, 1);
  begin(world);
  world.crash(2);
  world.advance(seconds(30));
  CHECK(world.job().restarts() == 0);
  CHECK(world.job().running());
}

TEST_CASE("nothing is loaded before the containers of a node that was cut off have ended") {
  World world = started(4);
  begin(world);
  checkpoint(world);
  const Time lost = world.now();
  world.cut_off(1);
  world.advance(seconds(60));
  REQUIRE(world.runs.size() == 2);
  CHECK(world.runs[1].after >= JobLimits{}.lease);
  CHECK(world.now() > lost);
}

TEST_CASE("without a set the job begins anew, and ends when it was restarted too often") {
  JobLimits limits;
  limits.restarts_max = 1;
  World world = started(5, 0, limits);
  begin(world);
  world.crash(0);
  world.advance(seconds(60));
  REQUIRE(world.runs.size() == 2);
  CHECK(world.runs[1].set == 0);
  world.crash(1);
  world.advance(seconds(90));
  REQUIRE(world.end.has_value());
  CHECK(world.end->status == 2);
  CHECK(world.end->why.find("restarted 1 times") != std::string::npos);
}

TEST_CASE("a node is evacuated without a step back") {
  World world = started(6, 1);
  begin(world);
  REQUIRE(world.job().want_evacuation(world.now(), 0));
  world.carry_out();
  world.advance(seconds(30));
  for (const auto& [box, node] : world.job().placement()) CHECK(node != 0);
  CHECK(world.job().restarts() == 0);
  CHECK(world.job().running());
  CHECK(world.running());
  REQUIRE(world.checkpoints.size() == 1);
  CHECK(world.checkpoints[0].taken);
}

TEST_CASE("an evacuated node gets containers again only if no other node is left") {
  World world(6, {}, 5, 4, 2);  // the containers are on nodes 0 and 1, and 2 and 3 are spares
  begin(world);
  const auto uses = [&](NodeId node) {
    return std::ranges::any_of(world.job().placement(),
                               [node](const auto& placed) { return placed.second == node; });
  };
  const auto evacuate = [&](NodeId node) {
    REQUIRE(world.job().want_evacuation(world.now(), node));
    world.carry_out();
    world.advance(seconds(30));
    REQUIRE(world.job().running());
    CHECK_FALSE(uses(node));
  };
  evacuate(0);
  // Node 0 has the fewest containers now.
  evacuate(1);
  CHECK_FALSE(uses(0));
  world.crash(2);
  world.advance(seconds(60));
  for (const auto& [box, node] : world.job().placement()) CHECK(node == 3);
  world.crash(3);
  world.advance(seconds(60));
  CHECK(world.job().running());
  CHECK(uses(0));
  CHECK(uses(1));
}

TEST_CASE("an evacuation begins at once when those that were wanted before it are refused") {
  World world = started(6, 1);  // node 2 is a spare, and runs nothing
  begin(world);
  CheckpointBook book;
  std::vector<NodeId> refused;
  std::size_t moved = 0;
  const auto refuse = [&](NodeId node) {
    book.want_move(node, [&refused, node](const Outcome<void>& done) {
      CHECK_FALSE(done);
      refused.push_back(node);
    });
  };
  refuse(2);
  refuse(7);
  book.want_move(0, [&](const Outcome<void>& done) { moved += done ? 1 : 0; });
  book.want_move(1, [](const Outcome<void>&) {});
  const auto begins = [&](NodeId node) -> Outcome<void> {
    if (world.job().want_evacuation(world.now(), node)) return {};
    return problem("nothing runs there");
  };
  const auto move = book.take_move(begins);
  REQUIRE(move);
  CHECK(move->node == 0);
  CHECK(refused == std::vector<NodeId>{2, 7});
  CHECK_FALSE(world.job().running());
  CHECK(moved == 0);
  move->done({});
  CHECK(moved == 1);
  CHECK(book.take_all().size() == 1);
  CHECK_FALSE(book.take_move(begins));
}

TEST_CASE("a refused evacuation may want another one") {
  CheckpointBook book;
  int refused = 0;
  book.want_move(0, [&](const Outcome<void>&) {
    ++refused;
    book.want_move(1, [&](const Outcome<void>&) { ++refused; });
  });
  const auto begins = [](NodeId) -> Outcome<void> { return problem("no other node is left"); };
  CHECK_FALSE(book.take_move(begins));
  CHECK(refused == 1);
  CHECK_FALSE(book.take_move(begins));
  CHECK(refused == 2);
}

/// Begins to evacuate node 0, until its containers are loaded elsewhere.
void evacuate_until_load(World& world) {
  begin(world);
  REQUIRE(world.job().want_evacuation(world.now(), 0));
  world.carry_out();
  for (int turn = 0; turn < 10'000 && world.job().phase() != "evacuate: load"; ++turn) {
    world.advance(milliseconds(1));
  }
  REQUIRE(world.job().phase() == "evacuate: load");
}

TEST_CASE("an evacuation that fails behind its set is answered, and the restart leaves the node") {
  World world(6, {}, 5, 4, 2);
  evacuate_until_load(world);
  world.crash(2);
  world.advance(seconds(60));
  CHECK(world.job().running());
  CHECK(world.job().restarts() == 1);
  REQUIRE(world.checkpoints.size() == 1);
  CHECK(world.checkpoints[0].taken);
  for (const auto& [box, node] : world.job().placement()) CHECK((node == 1 || node == 3));
}

TEST_CASE("an evacuation whose node must take its containers back has failed") {
  World world(6, {}, 5, 2, 0);
  evacuate_until_load(world);
  world.crash(1);
  world.advance(seconds(60));
  CHECK(world.job().running());
  REQUIRE(world.checkpoints.size() == 1);
  CHECK_FALSE(world.checkpoints[0].taken);
  for (const auto& [box, node] : world.job().placement()) CHECK(node == 0);
}

TEST_CASE("the program's end ends the job with its status, in any state") {
  for (int state = 0; state < 3; ++state) {
    World world = started(7);
    begin(world);
    if (state > 0) world.job().want_checkpoint(world.now());
    if (state > 1) world.job().on_node_lost(world.now(), 1, "gone");
    world.job().on_program_ended(world.now(), 42);
    world.carry_out();
    world.advance(seconds(120));
    REQUIRE(world.end.has_value());
    CHECK(world.end->status == 42);
  }
}

TEST_CASE("whatever breaks, a job runs or has ended when the trouble is over") {
  std::size_t ended = 0, restarted = 0, complete = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    Prng prng(seed * 7919);
    JobLimits limits;
    limits.restarts_max = 6;
    World world(seed, limits, 1 + static_cast<std::uint32_t>(prng.next() % 6), 4,
                static_cast<std::uint32_t>(prng.next() % 3));
    world.job().begin(world.now());
    world.carry_out();
    for (int turn = 0; turn < 30 && !world.end; ++turn) {
      world.fail_steps = prng.next() % 4 == 0 ? 0.1 : 0;
      world.ignore_steps = prng.next() % 8 == 0 ? 0.05 : 0;
      world.advance(milliseconds(prng.next() % 4000));
      if (world.end) break;
      const auto node = static_cast<NodeId>(prng.next() % 4);
      switch (prng.next() % 12) {
        case 0:
          if (world.is_up(node)) world.crash(node);
          break;
        case 1:
          if (world.is_up(node)) world.cut_off(node);
          break;
        case 2:
          (void)world.job().want_evacuation(world.now(), node);
          break;
        case 3:
          world.job().on_box_lost(world.now(), 0, "killed");
          break;
        default:
          world.job().want_checkpoint(world.now());
      }
      world.carry_out();
    }
    world.fail_steps = world.ignore_steps = 0;
    world.advance(std::chrono::hours(3));
    if (world.end) {
      ++ended;
      continue;
    }
    CHECK(world.job().running());
    CHECK(world.running());
    restarted += world.job().restarts();
    for (const auto& one : world.checkpoints) complete += one.taken ? 1 : 0;
  }
  // The chances above reach all of it.
  CHECK(ended > 10);
  CHECK(ended < 250);
  CHECK(restarted > 50);
  CHECK(complete > 200);
}

}  // namespace
}  // namespace stdchk::container
