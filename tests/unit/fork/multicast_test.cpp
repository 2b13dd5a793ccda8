#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/receiver.h"
#include "fork/multicast/sender.h"
#include "tests/support/catch.h"

namespace stdchk::multicast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kCells = 12;
constexpr std::size_t kCellBytes = kUnitBytes / kCells + 60;

/// A Net is a sender and receivers in simulated time. The sender's link has a rate and a queue.
/// Each receiver loses cells by chance, and gets at most its own rate.
struct Net {
  struct Node {
    std::unique_ptr<Receiver> receiver;
    Time from{};  ///< it comes then
    double loss = 0;
    double rate = 1e12;  ///< bytes a second
    bool unicast_only = false;
    Time free_at{};
    Time finished{};
    std::set<std::uint32_t> units;
    std::uint64_t cells_to_it = 0;
  };
  struct Event {
    bool is_ask = false;
    ReceiverId node = 0;
    Ask ask;
    CellAddress cell;
  };

  explicit Net(std::uint32_t unit_count, double rate) : units(unit_count), link_rate(rate) {
    SenderOptions options;
    options.units = units;
    options.cells = kCells;
    options.rate_start = rate / 2;
    sender = std::make_unique<Sender>(options);
  }
  void add(double loss, Duration late = {}, double rate = 1e12, bool unicast_only = false) {
    Node node;
    node.loss = loss;
    node.rate = rate;
    node.unicast_only = unicast_only;
    node.from = start + late;
    nodes.push_back(std::move(node));
  }

  void send(const CellAddress& cell) {
    ++link_cells;
    if (link_free < now) link_free = now;
    if (link_free - now > kQueue) return;  // dropped by the queue in front of the link
    link_free += std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * kCellBytes / link_rate));
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Node& node = nodes[i];
      if (cell.to != 0 ? cell.to != i + 1 : node.unicast_only) continue;
      if (node.receiver == nullptr ||
          prng.chance(static_cast<std::uint64_t>(node.loss * 1000), 1000)) {
        continue;
      }
      if (node.free_at < link_free) node.free_at = link_free;
      if (node.free_at - link_free > kQueue) continue;
      node.free_at +=
          std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * kCellBytes / node.rate));
      Event event;
      event.node = i + 1;
      event.cell = cell;
      events.emplace(node.free_at + kDelay, event);
    }
  }

  void handle(const Event& event) {
    if (event.is_ask) {
      CHECK(sender->on_ask(now, event.node, event.ask));
      return;
    }
    Node& node = nodes[event.node - 1];
    ++node.cells_to_it;
    if (!node.receiver->on_cell(now, event.cell.unit, event.cell.cell, kCellBytes)) return;
    if (wrong_units.erase(event.cell.unit) > 0) {
      node.receiver->reject(event.cell.unit);
      return;
    }
    REQUIRE(node.units.insert(event.cell.unit).second);
    node.receiver->accept(event.cell.unit);
    if (node.receiver->done()) node.finished = now;
  }

  void look_at(std::size_t i) {
    Node& node = nodes[i];
    if (now < node.from) return;
    if (node.receiver == nullptr) {
      ReceiverOptions options;
      options.units = units;
      options.cells = kCells;
      options.begin = sender->position();
      options.by_unicast = node.unicast_only;
      node.receiver = std::make_unique<Receiver>(options);
    }
    while (auto ask = node.receiver->next(now)) {
      Event event;
      event.is_ask = true;
      event.node = i + 1;
      event.ask = *ask;
      if (!prng.chance(static_cast<std::uint64_t>(node.loss * 1000), 1000)) {
        events.emplace(now + kDelay, event);
      }
    }
  }

  bool all_finished() const {
    return std::all_of(nodes.begin(), nodes.end(),
                       [](const Node& node) { return node.finished != Time{}; });
  }

  /// Runs until every receiver has everything. Returns the seconds.
  double run(double seconds_most = 120) {
    const Time end =
        start + std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds_most));
    while (!all_finished() && now < end) {
      while (!events.empty() && events.begin()->first <= now) {
        const Event event = events.begin()->second;
        events.erase(events.begin());
        handle(event);
      }
      for (std::size_t i = 0; i < nodes.size(); ++i) look_at(i);
      while (const auto cell = sender->next(now, kCellBytes)) send(*cell);
      now += microseconds(200);
    }
    REQUIRE(all_finished());
    for (const Node& node : nodes) CHECK(node.units.size() == units);
    Time last{};
    for (const Node& node : nodes) last = std::max(last, node.finished);
    return std::chrono::duration<double>(last - start).count();
  }
  double copies_sent() const { return double(link_cells) / double(units * kCells); }

  static constexpr Duration kDelay = microseconds(300);
  static constexpr Duration kQueue = milliseconds(20);
  const std::uint32_t units;
  const double link_rate;
  const Time start = Time{} + std::chrono::seconds(1);
  Time now = start;
  Time link_free{};
  Prng prng{42};
  std::unique_ptr<Sender> sender;
  std::vector<Node> nodes;
  std::multimap<Time, Event> events;
  std::set<std::uint32_t> wrong_units;
  std::uint64_t link_cells = 0;
};

constexpr std::uint32_t kUnits = 2048;  // 32 MiB
constexpr double kGigabit = 118e6;

TEST_CASE("one image goes to 1, 4 and 16 receivers in about the same time, once over the link") {
  Net one(kUnits, kGigabit);
  one.add(0);
  const double alone = one.run();
  INFO("one receiver: " << alone << " s, " << one.copies_sent() << " copies");
  CHECK(alone < 1.5 * kUnits * double(kUnitBytes) / kGigabit);
  for (const int count : {4, 16}) {
    Net net(kUnits, kGigabit);
    for (int i = 0; i < count; ++i) net.add(0, milliseconds(3 * i));
    const double took = net.run();
    INFO(count << " receivers: " << took << " s, " << net.copies_sent() << " copies");
    CHECK(took < 1.3 * alone);
    CHECK(net.copies_sent() < 1.2);
  }
}

TEST_CASE("lost cells are sent again, and nobody lacks anything") {
  for (const double loss : {0.01, 0.05}) {
    for (const int count : {1, 4, 16}) {
      Net net(kUnits, kGigabit);
      for (int i = 0; i < count; ++i) net.add(loss);
      const double took = net.run();
      INFO(loss << " lost, " << count << " receivers: " << took << " s, " << net.copies_sent()
                << " copies, rate " << net.sender->rate());
      // Each of the receivers loses other cells.
      CHECK(net.copies_sent() < 1.25 + 1.5 * loss * count);
      CHECK(took < 2.2 * kUnits * double(kUnitBytes) / kGigabit * (1 + 1.5 * loss * count));
    }
  }
}

TEST_CASE("a receiver that comes late slows nobody") {
  Net early(kUnits, kGigabit);
  for (int i = 0; i < 3; ++i) early.add(0);
  const double without = early.run();
  Net net(kUnits, kGigabit);
  for (int i = 0; i < 3; ++i) net.add(0);
  net.add(0, milliseconds(150));
  net.run();
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::chrono::duration<double>(net.nodes[i].finished - net.start).count() <
          1.15 * without);
  }
  CHECK(net.copies_sent() < 1.8);
}

TEST_CASE("a receiver on a slow link falls back to unicast and slows nobody much") {
  Net alone(kUnits, kGigabit);
  for (int i = 0; i < 3; ++i) alone.add(0);
  const double without = alone.run();
  Net net(kUnits, kGigabit);
  for (int i = 0; i < 3; ++i) net.add(0);
  net.add(0, {}, kGigabit / 10);
  net.run();
  for (std::size_t i = 0; i < 3; ++i) {
    const double took = std::chrono::duration<double>(net.nodes[i].finished - net.start).count();
    INFO(took << " s beside a slow one, " << without << " s without");
    CHECK(took < 2.0 * without);
  }
}

TEST_CASE("a receiver that multicast does not reach gets all by unicast") {
  Net net(256, kGigabit);
  net.add(0);
  net.add(0.01, {}, 1e12, true);
  net.run();
  CHECK(net.sender->is_unicast(2));
  CHECK_FALSE(net.sender->is_unicast(1));
}

TEST_CASE("a unit whose bytes are wrong is asked for again") {
  Net net(64, kGigabit);
  net.add(0);
  net.wrong_units = {0, 13, 63};
  net.run();
  CHECK(net.nodes[0].receiver->counts().rejected_units == 3);
}

TEST_CASE("equal requests within the measured delay are answered once") {
  SenderOptions options;
  options.units = 10;
  options.cells = 1;
  Sender sender(options);
  Time now = Time{} + std::chrono::seconds(1);
  Ask ask;
  ask.delay_us = 10000;
  ask.wants = {{3, 2, 1}};
  REQUIRE(sender.on_ask(now, 1, ask));
  REQUIRE(sender.on_ask(now, 2, ask));
  CHECK_FALSE(sender.next(now, 1000));  // begins to count what may be sent
  now += milliseconds(1);
  CHECK(sender.next(now, 1000) == CellAddress{3, 0, 0});
  CHECK(sender.next(now, 1000) == CellAddress{4, 0, 0});
  CHECK_FALSE(sender.next(now, 1000));
  REQUIRE(sender.on_ask(now + milliseconds(8), 3, ask));
  CHECK(sender.counts().lockstep_units == 4);
  REQUIRE(sender.on_ask(now + milliseconds(12), 3, ask));
  CHECK(sender.next(now + milliseconds(12), 1000));
}

TEST_CASE("an ask for more units than an honest receiver asks for is refused") {
  SenderOptions options;
  options.units = 3 * Ask::kWantedUnitsMax;
  Sender sender(options);
  const Time now = Time{} + std::chrono::seconds(1);
  Ask ask;
  ask.by_unicast = true;
  ask.wants = {{0, Ask::kWantedUnitsMax, 1}};
  CHECK(sender.on_ask(now, 1, ask));
  ask.wants.push_back({Ask::kWantedUnitsMax, 1, 1});
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  ask.wants.assign(Ask::kWantsMax, {0, 2 * Ask::kWantedUnitsMax, 1});
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  CHECK(sender.counts().asked_units == Ask::kWantedUnitsMax);
}

TEST_CASE("a receiver asks for the manifest only, until the whole manifest is accepted") {
  ReceiverOptions options;
  options.units = 1000;
  options.in_front = 2;
  options.begin = 500;
  Receiver receiver(options);
  Time now = Time{} + std::chrono::seconds(1);
  const auto first = receiver.next(now);
  REQUIRE(first);
  CHECK(first->wants == std::vector<Want>{{0, 2, 1}});
  CHECK_FALSE(receiver.needs(2, 0));
  CHECK_FALSE(receiver.on_cell(now, 2, 0, kUnitBytes));
  for (const std::uint32_t unit : {1U, 0U}) {
    CHECK_FALSE(receiver.needs(500, 0));
    REQUIRE(receiver.on_cell(now, unit, 0, kUnitBytes));
    receiver.accept(unit);
  }
  CHECK(receiver.needs(2, 0));
  const auto second = receiver.next(now + milliseconds(5));
  REQUIRE(second);
  CHECK(second->wants.front().first == 500);
}

TEST_CASE("cells of units that a receiver has not asked for take a limited room") {
  ReceiverOptions options;
  options.units = 3 * Receiver::kUnaskedMax;
  options.cells = 2;
  Receiver receiver(options);
  Time now = Time{} + std::chrono::seconds(1);
  for (std::uint32_t unit = 0; unit < options.units; ++unit) {
    CHECK(receiver.needs(unit, 0) == (unit < Receiver::kUnaskedMax));
    CHECK_FALSE(receiver.on_cell(now, unit, 0, 100));
  }
  CHECK(receiver.counts().skipped_cells == 2 * Receiver::kUnaskedMax);
  // A unit that becomes whole, or that the receiver asks for, makes room.
  CHECK(receiver.on_cell(now, 100, 1, 100));
  receiver.accept(100);
  CHECK(receiver.needs(options.units - 1, 0));
  CHECK_FALSE(receiver.on_cell(now, options.units - 1, 0, 100));
  CHECK_FALSE(receiver.needs(options.units - 2, 0));
  REQUIRE(receiver.next(now + milliseconds(5)));
  CHECK(receiver.needs(options.units - 2, 0));
}

TEST_CASE("a relay keeps asks for units that have not come, and sends each when it comes") {
  SenderOptions options;
  options.units = 10;
  options.cells = 2;
  options.holds_all = false;
  Sender relay(options);
  Time now = Time{} + std::chrono::seconds(1);
  relay.have(4);
  Ask ask;
  ask.wants = {{3, 2, 3}, {7, 1, 1}};
  REQUIRE(relay.on_ask(now, 1, ask));
  REQUIRE(relay.on_ask(now, 2, Ask{}));
  CHECK_FALSE(relay.next(now, 1000));  // begins to count what may be sent
  now += milliseconds(1);
  CHECK(relay.next(now, 1000) == CellAddress{4, 0, 1});
  CHECK(relay.next(now, 1000) == CellAddress{4, 1, 1});
  CHECK_FALSE(relay.next(now, 1000));
  CHECK(relay.wake_at() > now);
  relay.have(3);
  relay.have(6);
  relay.have(7);
  CHECK(relay.wake_at() <= now);
  CHECK(relay.next(now, 1000) == CellAddress{3, 0, 1});
  CHECK(relay.next(now, 1000) == CellAddress{3, 1, 1});
  CHECK(relay.next(now, 1000) == CellAddress{7, 0, 1});
  CHECK_FALSE(relay.next(now, 1000));
}

/// Sends for `time` to a receiver that wants all units by unicast.
void send_for(Sender& sender, Time& now, std::uint32_t units, Duration time) {
  Ask ask;
  ask.by_unicast = true;
  for (const Time end = now + time; now < end; now += milliseconds(1)) {
    ask.wants = {{0, static_cast<std::uint16_t>(units), 1}};
    REQUIRE(sender.on_ask(now, 1, ask));
    while (sender.next(now, 16000)) {
    }
  }
}

TEST_CASE("the rate rises and falls with receivers that are all served by unicast") {
  SenderOptions options;
  options.units = 4000;
  options.rate_start = 64e6;
  Sender sender(options);
  Time now = Time{} + std::chrono::seconds(1);
  send_for(sender, now, options.units, milliseconds(300));
  const double risen = sender.rate();
  CHECK(risen > 100e6);
  // The receiver gets half of what is sent, and misses the rest.
  Ask ask;
  ask.by_unicast = true;
  ask.lost_cells = 100;
  ask.rate_kib = static_cast<std::uint32_t>(risen / 2 / 1024);
  for (int i = 0; i < 20; ++i) REQUIRE(sender.on_ask(now, 1, ask));
  CHECK(sender.counts().backed_off == 1);
  CHECK(sender.rate() < 0.5 * risen);
}

TEST_CASE("when all receivers have lagged, the sender tries multicast again") {
  SenderOptions options;
  options.units = 400;
  options.rate_start = 64e6;
  Sender sender(options);
  Time now = Time{} + std::chrono::seconds(1);
  // Two receivers want everything, and each reports this share of the rate. Returns true when both
  // were served as `unicast` says at the same time.
  const auto serve = [&](double share, Duration time, bool unicast) {
    bool seen = false;
    for (const Time end = now + time; now < end; now += milliseconds(1)) {
      for (const ReceiverId id : {1U, 2U}) {
        Ask ask;
        ask.rate_kib = static_cast<std::uint32_t>(share * sender.rate() / 1024);
        ask.wants = {{0, 400, 1}};
        REQUIRE(sender.on_ask(now, id, ask));
      }
      while (sender.next(now, 16000)) {
      }
      seen = seen || (sender.is_unicast(1) == unicast && sender.is_unicast(2) == unicast);
    }
    return seen;
  };
  CHECK(serve(0.1, milliseconds(1000), true));
  // By unicast, each gets half of what is sent.
  CHECK(serve(0.5, milliseconds(2000), false));
}

TEST_CASE("a receiver that is gone is forgotten at once, and does not count as complete") {
  SenderOptions options;
  options.units = 10;
  Sender sender(options);
  const Time now = Time{} + std::chrono::seconds(1);
  Ask ask;
  ask.wants = {{0, 1, 1}};
  for (const ReceiverId id : {1U, 2U}) CHECK(sender.on_ask(now, id, ask));
  Ask farewell;
  farewell.gone = true;
  CHECK(sender.on_ask(now, 1, farewell));
  CHECK(sender.receivers() == 1);
  CHECK_FALSE(sender.all_done(now));
  CHECK(sender.on_ask(now, 3, farewell));
  CHECK(sender.receivers() == 1);
}

TEST_CASE("asks for what does not exist are refused") {
  SenderOptions options;
  options.units = 10;
  options.cells = 2;
  Sender sender(options);
  const Time now = Time{} + std::chrono::seconds(1);
  Ask ask;
  CHECK_FALSE(sender.on_ask(now, 0, ask));
  ask.wants = {{9, 2, 1}};
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  ask.wants = {{10, 0, 1}};
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  ask.wants = {{0, 1, 4}};
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  ask.wants.assign(10, {0, 1, 1});
  CHECK(sender.on_ask(now, 1, ask));
  ask.wants.assign(Ask::kWantsMax + 1, {0, 1, 1});
  CHECK_FALSE(sender.on_ask(now, 1, ask));
  for (ReceiverId id = 1; id <= Sender::kReceiversMax; ++id) REQUIRE(sender.on_ask(now, id, Ask{}));
  CHECK_FALSE(sender.on_ask(now, Sender::kReceiversMax + 1, Ask{}));
}

}  // namespace
}  // namespace stdchk::multicast
