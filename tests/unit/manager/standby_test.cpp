// Tests that a standby decides by a majority of the benefactors that keep the log, and that the
// manager answers by the same majority.
#include "manager/recovery/standby.h"

#include "manager/recovery/log_replicas.h"
#include "manager/recovery/rebuilder.h"
#include "tests/unit/manager/world.h"
#include "transport/fault/fault.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr Duration kSilence = 5s;

/// A standby at "mem:standby", with a link to the manager that can be cut.
struct StandbyHost {
  explicit StandbyHost(World& of, const std::string& name = "standby")
      : world(of),
        endpoint(of.fabric.make_endpoint(name, of.clock)),
        to_manager(of.fabric.make_endpoint(name + ".out", of.clock), of.clock, 1) {
    world.reactor.add(*endpoint);
    world.reactor.add(to_manager);
    rebuilder = std::make_unique<Rebuilder>(
        world.reactor, journal, Membership::trusting_all(),
        [this](Result<Rebuilder::Found> got) { found = std::move(got); });
    REQUIRE(rebuilder->start_as_standby());
    REQUIRE(endpoint->listen(*rebuilder));
    Standby::Config config;
    config.manager = "mem:manager";
    config.address = "mem:" + name;
    config.silence = kSilence;
    config.on_followed = [this] { follows = true; };
    config.on_refused = [this](const std::string& why) { refused = why; };
    standby = std::make_unique<Standby>(world.reactor, to_manager, std::move(config));
    standby->watch(*rebuilder);
    world.pass(2s);
  }
  ~StandbyHost() {
    standby.reset();
    rebuilder.reset();
    world.reactor.remove(to_manager);
    world.reactor.remove(*endpoint);
  }
  /// The state with which the standby would serve.
  State taken() {
    State state;
    REQUIRE(found);
    REQUIRE(*found);
    REQUIRE(journal.load(world.reactor, [&](const Command& command) -> Status {
      const auto applied = state.apply(command);
      if (!applied) return fail(applied.error());
      return {};
    }));
    journal.stop();
    return state;
  }

  World& world;
  MemoryJournal journal;
  std::unique_ptr<transport::Endpoint> endpoint;
  transport::fault::FaultEndpoint to_manager;
  std::unique_ptr<Rebuilder> rebuilder;
  std::unique_ptr<Standby> standby;
  bool follows = false;
  std::string refused;
  std::optional<Result<Rebuilder::Found>> found;
};

/// A manager and three benefactors that keep its log.
struct Scene : World {
  Scene() {
    config.remember_standby = [this](const std::string& address) {
      remembered = address;
      return true;
    };
    config.on_superseded = [this](Epoch epoch) { superseded = epoch; };
    start();
    for (std::uint64_t life = 1; life <= 3; ++life) {
      const std::string name = "b" + std::to_string(life);
      keepers.push_back(
          std::make_unique<TestBenefactor>(*this, name, life, kArena, "h" + std::to_string(life)));
      keepers.back()->keep_log();
    }
    pass(400ms);
    REQUIRE(service->planners().logs.count() == 3);
  }
  /// The benefactor loses the manager and asks the standby.
  void go_to_standby(std::size_t index) {
    TestBenefactor& keeper = *keepers.at(index);
    keeper.connect("mem:standby");
    keeper.peer().call(keeper.request(), limits::kCallDeadline,
                       [this, index](const rpc::Answer& answer) {
                         sent_away[index] += answer.has_value() ? 0 : 1;
                       });
    turn();
  }
  /// Lets time pass while the benefactors `with_manager` stay alive.
  void live(Duration time, std::vector<std::size_t> with_manager) {
    for (Duration passed{}; passed < time; passed += 500ms) {
      pass(500ms);
      for (const std::size_t index : with_manager) keepers.at(index)->beat();
    }
  }
  /// Asks the manager for a change; sets `done` when the change succeeds.
  void ask(TestClient& client, const std::string& name, bool& done) {
    client.peer().call(msg::MakeDirectory{client.id, kRootFile, name, 0755}, 60s,
                       [&done](const rpc::Answer& answer) { done |= answer.has_value(); });
    turn();
  }

  std::vector<std::unique_ptr<TestBenefactor>> keepers;
  std::map<std::size_t, int> sent_away;
  std::string remembered;
  Epoch superseded;
};

bool has(const State& state, const std::string& name) {
  return state.lookup(kRootFile, name, ClientId{}).has_value();
}

}  // namespace

TEST_CASE("a standby takes over with all that was answered when the manager is silent") {
  Scene scene;
  {
    TestClient client(scene, "client");
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "a", 0755}));
  }
  StandbyHost host(scene);
  CHECK(host.follows);
  CHECK(scene.remembered == "mem:standby");
  {
    TestClient client(scene, "client2");
    const auto pool = client.call(msg::StatPool{});
    REQUIRE(pool);
    CHECK(pool->standby == "mem:standby");
    CHECK(pool->standby_follows);
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "b", 0755}));
  }
  scene.stop();
  // Before its silence limit, the standby sends benefactors away.
  scene.pass(kSilence - 2s);
  scene.go_to_standby(0);
  CHECK(scene.sent_away[0] == 1);
  scene.pass(3s);
  scene.go_to_standby(0);
  scene.pass(1s);
  CHECK_FALSE(host.found);
  scene.go_to_standby(1);
  scene.pass(200ms);
  const State taken = host.taken();
  CHECK(taken.epoch() == Epoch{kEpochBlock - 1});
  CHECK(has(taken, "a"));
  CHECK(has(taken, "b"));
}

TEST_CASE("a standby passes over a log with a wrong bit, where another one has what was answered") {
  Scene scene;
  TestClient client(scene, "client");
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "the name", 0755}));
  StandbyHost host(scene);
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "another", 0755}));
  SECTION("one that is as new") {
    const std::size_t good = GENERATE(0u, 1u);
    scene.stop();
    flip_bit(*scene.keepers[1 - good], "the name");
    scene.pass(kSilence + 1s);
    scene.go_to_standby(0);
    scene.go_to_standby(1);
    scene.pass(1s);
  }
  SECTION("or two of three, when that of the wrong bit is newer") {
    scene.keepers[1]->log_stopped = scene.keepers[2]->log_stopped = true;
    bool done = false;
    scene.ask(client, "not answered", done);
    scene.pass(100ms);
    REQUIRE_FALSE(done);
    scene.stop();
    flip_bit(*scene.keepers[0], "the name");
    scene.pass(kSilence + 1s);
    scene.go_to_standby(0);
    scene.go_to_standby(1);
    scene.pass(2s);
    // The manager may have answered the change, and the third benefactor's log may have it.
    CHECK_FALSE(host.found);
    scene.go_to_standby(2);
    scene.pass(1s);
  }
  const State taken = host.taken();
  CHECK(has(taken, "the name"));
  CHECK(has(taken, "another"));
}

TEST_CASE("a standby that is cut off takes nothing over while the benefactors hear the manager") {
  Scene scene;
  StandbyHost host(scene);
  host.to_manager.stall(true);
  TestClient client(scene, "client");
  scene.live(10s, {0, 1, 2});
  // A benefactor with a lost link is sent back before the manager has missed it for long.
  scene.go_to_standby(0);
  scene.live(4s, {1, 2});
  CHECK(scene.sent_away[0] == 0);
  scene.live(1s, {1, 2});
  CHECK(scene.sent_away[0] == 1);
  scene.keepers[0]->connect();
  scene.keepers[0]->register_now();
  scene.live(20s, {0, 1, 2});
  CHECK_FALSE(host.found);
  client.register_now();
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "a", 0755}));
  host.to_manager.stall(false);
  scene.live(6s, {0, 1, 2});
  client.register_now();
  CHECK(client.call(msg::StatPool{})->standby_follows);
  // The standby now sends new callers away at once.
  scene.go_to_standby(0);
  CHECK(scene.sent_away[0] == 2);
}

TEST_CASE("a change is refused at once when those before it have waited for long") {
  Scene scene;
  StandbyHost host(scene);
  TestClient client(scene, "client");
  host.to_manager.stall(true);
  for (const std::size_t index : {1u, 2u}) scene.keepers[index]->disconnect();
  bool first = false;
  bool second = false;
  scene.ask(client, "first", first);
  for (int passed = 0; passed < 19; ++passed) {
    scene.live(1s, {0});
    client.register_now();
  }
  scene.ask(client, "second", second);
  scene.live(2s, {0});
  client.register_now();
  CHECK_FALSE(first);
  CHECK_FALSE(second);
  const Time asked = scene.clock.now();
  const auto third = client.call(msg::MakeDirectory{client.id, kRootFile, "third", 0755});
  REQUIRE_FALSE(third);
  CHECK(third.error().code == Code::kManagerLost);
  CHECK(scene.clock.now() == asked);
  CHECK_FALSE(has(scene.service->state(), "third"));
  // When the benefactors return, all waiting requests are answered, and changes work again.
  for (const std::size_t index : {1u, 2u}) {
    scene.keepers[index]->connect();
    scene.keepers[index]->register_now();
  }
  scene.live(6s, {0, 1, 2});
  client.register_now();
  CHECK(first);
  CHECK(second);
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "fourth", 0755}));
}

TEST_CASE("what a manager has not answered when most keepers left it, it never answers") {
  Scene scene;
  StandbyHost host(scene);
  TestClient client(scene, "client");
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "before", 0755}));
  host.to_manager.stall(true);
  scene.live(kSilence + 1s, {0, 1, 2});
  // A cut divides the network. Two of three benefactors reach only the standby, the third reaches
  // only the manager, like the client.
  scene.go_to_standby(1);
  bool done = false;
  client.register_now();
  scene.ask(client, "with two", done);
  scene.pass(100ms);
  CHECK(done);
  scene.go_to_standby(2);
  bool late = false;
  scene.ask(client, "with one", late);
  scene.live(5s, {0});
  REQUIRE(host.found);
  const State taken = host.taken();
  CHECK(has(taken, "before"));
  CHECK(has(taken, "with two"));
  CHECK_FALSE(has(taken, "with one"));
  scene.live(10s, {0});
  CHECK_FALSE(late);
  // The change also fails after a benefactor that has promised itself to the standby returns.
  scene.keepers[1]->connect();
  scene.keepers[1]->register_now();
  scene.live(10s, {0, 1});
  CHECK_FALSE(late);
  CHECK(scene.superseded == Epoch{});
  // The manager learns of its successor as soon as the successor reaches it.
  host.standby->announce(Epoch{kEpochBlock});
  host.to_manager.stall(false);
  scene.pass(10s);
  CHECK(scene.superseded == Epoch{kEpochBlock});
  CHECK_FALSE(late);
}

TEST_CASE("a manager that most keepers have left lets no benefactor go") {
  Scene scene;
  StandbyHost host(scene);
  TestBenefactor& leaving = *scene.keepers[0];
  host.to_manager.stall(true);
  scene.live(kSilence + 1s, {0, 1, 2});
  scene.go_to_standby(1);
  scene.go_to_standby(2);
  // The successor may not know the copies that this manager has ordered.
  for (int i = 0; i < 3; ++i) {
    std::optional<rpc::Answer> answer;
    leaving.peer().call(msg::BenefactorHeartbeat{leaving.id, true}, limits::kCallDeadline,
                        [&](rpc::Answer got) { answer = std::move(got); });
    scene.pass(limits::kHeartbeatInterval + 100ms);
    REQUIRE(answer);
    REQUIRE(*answer);
    CHECK_FALSE(std::get<msg::BenefactorHeartbeat::Reply>(**answer).may_go);
  }
}

TEST_CASE("a manager with a standby goes on when a keeper is lost, and the standby knows of it") {
  Scene scene;
  StandbyHost host(scene);
  TestClient client(scene, "client");
  scene.keepers[0]->disconnect();
  scene.keepers[1]->disconnect();
  // Only one of three benefactors is left. The manager answers after the standby has learned which
  // one.
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "a", 0755}));
  scene.live(2s, {2});
  scene.stop();
  scene.pass(kSilence + 1s);
  scene.go_to_standby(0);
  scene.go_to_standby(1);
  scene.pass(1s);
  CHECK_FALSE(host.found);
  scene.go_to_standby(2);
  scene.pass(200ms);
  CHECK(has(host.taken(), "a"));
}

TEST_CASE("a manager that is restarted answers nothing before its standby is heard") {
  Scene scene;
  {
    StandbyHost host(scene);
    CHECK(host.follows);
  }
  scene.config.standby = scene.remembered;
  scene.restart();
  Actor stranger(scene, "client");
  bool registered = false;
  stranger.peer().call(msg::RegisterClient{}, limits::kCallDeadline,
                       [&](const rpc::Answer& answer) { registered = answer.has_value(); });
  scene.pass(5s);
  CHECK_FALSE(registered);
  StandbyHost host(scene);
  CHECK(host.follows);
  CHECK(registered);
}

TEST_CASE("a manager has one standby") {
  Scene scene;
  StandbyHost host(scene);
  StandbyHost other(scene, "other");
  CHECK_FALSE(other.follows);
  CHECK(other.refused == "Its standby is at mem:standby.");
}

TEST_CASE("what is asked in the name of an earlier manager's client has ended with that") {
  Scene scene;
  TestClient client(scene, "client");
  const ClientId before = client.id;
  scene.restart();
  client.connect();
  client.register_now();
  REQUIRE(client.id != before);
  CHECK(client.call(msg::Lookup{before, kRootFile, "a"}).error().code == Code::kFenced);
}

TEST_CASE("a standby that has heard of another manager than it followed does not take over") {
  Scene scene;
  StandbyHost host(scene);
  scene.stop();
  scene.pass(kSilence + 1s);
  for (const std::size_t index : {0U, 1U, 2U}) {
    scene.keepers[index]->epoch = Epoch{kEpochBlock};
    scene.go_to_standby(index);
  }
  scene.pass(10s);
  CHECK_FALSE(host.found);
}
