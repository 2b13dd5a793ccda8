// Tests a journal that has lost its end, of which other processes know.
#include "manager/recovery/log_replicas.h"
#include "manager/recovery/rebuilder.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

/// A manager, and two benefactors that keep its log.
struct TestPool {
  TestPool() {
    one.keep_log();
    two.keep_log();
    world.pass(400ms);
    REQUIRE(world.service->planners().logs.count() == 2);
  }
  static World& start(World& world, std::vector<std::string>& damage) {
    world.config.on_damaged = [&damage](const std::string& how) { damage.push_back(how); };
    world.start();
    return world;
  }
  void write(const std::string& name) {
    TestClient client(world, "client");
    REQUIRE(client.write(name, 1000, 7));
  }
  /// Restarts the manager with a journal that lacks the last `commands` answered commands.
  void restart_without(std::size_t commands) {
    world.stop();
    world.journal.lose_end(commands);
    world.start();
  }
  /// Registers the benefactor; returns the answer, if one arrives before time passes.
  std::optional<rpc::Answer>& come(TestBenefactor& benefactor) {
    auto& answer = answers.emplace_back();
    benefactor.connect();
    benefactor.peer().call(benefactor.request(), limits::kCallDeadline,
                           [&answer](rpc::Answer got) { answer = std::move(got); });
    world.turn();
    return answer;
  }
  bool is_refused(TestBenefactor& benefactor) {
    const auto& answer = come(benefactor);
    return answer && !*answer && answer->error().error.code == Code::kBusy;
  }

  World world;
  std::vector<std::string> damage;
  std::deque<std::optional<rpc::Answer>> answers;
  TestBenefactor one{start(world, damage), "b1", 1, kArena, "h1"};
  TestBenefactor two{world, "b2", 2, kArena, "h2"};
};

}  // namespace

TEST_CASE("what the journal does not get is no record of its epoch") {
  State state;
  REQUIRE(state.apply(BeginEpoch{Epoch{1}}));
  REQUIRE(state.pending().make(FileId{7}, NewName{kRootFile, "new", 0644, 0, 0, 0, {}}, ClientId{3},
                               0));
  REQUIRE(state.apply_unjournalled(ChangeXattr{{ClientId{3}, FileId{7}, "user.a", "1"}, 0}));
  CHECK_FALSE(state.lacks(Epoch{1}, 1));
  CHECK(state.lacks(Epoch{1}, 2));
}

TEST_CASE("a journal that lacks an answered record is damaged, and logs of benefactors stay") {
  TestPool pool;
  pool.write("a");
  pool.one.beat();
  const std::uint64_t sequence = pool.one.log->sequence();
  pool.restart_without(1);
  // The second benefactor does not know the record, so the manager waits for the first.
  CHECK_FALSE(pool.come(pool.two));
  CHECK(pool.is_refused(pool.one));
  REQUIRE(pool.damage.size() == 1);
  CHECK(pool.damage[0].find("record " + std::to_string(sequence)) != std::string::npos);
  pool.world.pass(5s);
  CHECK(pool.world.service->pool().journal().failed());
  for (const TestBenefactor* each : {&pool.one, &pool.two}) {
    CHECK(each->log->epoch() == Epoch{1});
    CHECK(each->log->sequence() == sequence);
  }
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a journal that has lost the beginning of its epoch is damaged, also an empty one") {
  TestPool pool;
  pool.write("a");
  const bool all = GENERATE(false, true);
  if (!all) {
    pool.restart_without(0);
    pool.one.connect();
    pool.two.connect();
    pool.one.peer().call(pool.one.request(), limits::kCallDeadline, [](const rpc::Answer&) {});
    pool.two.register_now();
    pool.one.register_now();
    REQUIRE(pool.one.epoch == Epoch{2});
  }
  pool.restart_without(all ? 1000 : 1);
  CHECK(pool.world.service->state().epoch() == (all ? Epoch{1} : Epoch{2}));
  CHECK(pool.is_refused(pool.one));
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a journal that has lost several epochs is damaged, and there is no other manager") {
  TestPool pool;
  std::vector<Epoch> later;
  pool.world.config.on_superseded = [&](Epoch epoch) { later.push_back(epoch); };
  pool.restart_without(1000);
  pool.one.epoch = Epoch{kEpochBlock - 1};
  CHECK(pool.is_refused(pool.one));
  CHECK(later.empty());
  CHECK(pool.damage.size() == 1);
  pool.restart_without(1000);
  pool.one.epoch = Epoch{kEpochBlock};
  CHECK(pool.is_refused(pool.one));
  CHECK(later.size() == 1);
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a damaged journal is found out later, too, and not by more that is written to it") {
  TestPool pool;
  pool.world.journal.set_snapshot_every(GENERATE(2U, 10000U));
  pool.write("a");
  pool.one.beat();
  pool.restart_without(1);
  CHECK_FALSE(pool.come(pool.two));
  // No other benefactor comes in time, so the manager serves.
  pool.world.pass(2200ms);
  CHECK(pool.answers.back());
  for (const char* const name : {"b", "c", "d"}) pool.write(name);
  pool.world.pass(500ms);
  pool.restart_without(0);
  CHECK(pool.damage.empty());
  CHECK(pool.is_refused(pool.one));
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a client that was given its number by nobody shows that the journal has lost its end") {
  TestPool pool;
  Actor client(pool.world, "client");
  msg::RegisterClient request;
  const auto reply = client.call(request);
  REQUIRE(reply);
  pool.restart_without(1000);
  client.connect();
  request.resume = reply->client;
  request.newest_epoch = reply->epoch;
  CHECK(client.call(request).error().code == Code::kBusy);
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a standby that knows an epoch before it is told shows the same") {
  TestPool pool;
  Actor standby(pool.world, "standby");
  const auto reply = standby.call(msg::FollowManager{"mem:standby", {}, 0});
  REQUIRE(reply);
  pool.restart_without(1000);
  standby.connect();
  CHECK(standby.call(msg::FollowManager{"mem:standby", reply->epoch, 1}).error().code ==
        Code::kBusy);
  CHECK(pool.damage.size() == 1);
}

TEST_CASE("a manager that was killed is not taken for one with a damaged journal") {
  TestPool pool;
  pool.world.journal.set_snapshot_every(GENERATE(3U, 10U, 10000U));
  Prng prng(1);
  for (int round = 0; round < 50; ++round) {
    pool.write("x" + std::to_string(round));
    if (prng.chance(1, 2)) pool.one.beat();
    if (prng.chance(1, 2)) pool.two.beat();
    // Unanswered commands are lost.
    pool.world.journal.set_automatic(false);
    pool.world.service->pool().execute(SetPolicy{kRootFile, {}, 1},
                                       [](const Result<manager::Affected>&) {});
    const auto dropped = pool.world.journal.drop_unsynced();
    pool.world.journal.set_automatic(true);
    pool.restart_without(0);
    const bool both = prng.chance(1, 2);
    if (both) pool.come(pool.two);
    pool.one.connect();
    pool.one.register_now();
    if (!both) pool.two.connect();
    pool.two.register_now();
    pool.world.pass(400ms);
  }
  CHECK(pool.damage.empty());
}
