#include "manager/sessions/ledger.h"

#include <cmath>

#include "tests/unit/manager/hosts_pool.h"
#include "tests/unit/manager/training.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;
constexpr std::uint64_t kSecond = 1'000'000'000;

/// The write totals of the client whose first number was `first`.
msg::WriterTotals written(ClientId first, std::uint64_t bytes, std::uint64_t longest_s = 0) {
  msg::WriterTotals totals;
  totals.first = first;
  totals.closed_bytes = bytes;
  totals.open_to_close_ns = 2 * bytes;
  totals.committed_bytes = bytes;
  totals.open_to_commit_ns = 3 * bytes;
  totals.longest_call_ns = longest_s * kSecond;
  return totals;
}

msg::PoolTotals totals_of(TestClient& client) {
  const auto reply = client.call(msg::StatPool{});
  REQUIRE(reply);
  return reply->totals;
}

/// A live benefactor and a live client, in a pool that may drain.
struct Scene : World {
  explicit Scene(const std::string& drain = {}, std::uint64_t arena_bytes = kArena)
      : World(drain), arena(arena_bytes) {
    start();
    begin();
  }
  void begin() {
    benefactor = std::make_unique<TestBenefactor>(*this, "b1", 1, arena);
    client = std::make_unique<TestClient>(*this, "client");
  }
  void begin_again() {
    client.reset();
    benefactor.reset();
    restart();
    begin();
  }
  void live(Duration time) {
    for (Duration passed{}; passed < time; passed += 500ms) {
      benefactor->beat();
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
      pass(500ms);
    }
  }
  double at_risk() {
    return static_cast<double>(totals_of(*client).at_risk_ns) / static_cast<double>(kSecond);
  }

  const std::uint64_t arena;
  std::unique_ptr<TestBenefactor> benefactor;
  std::unique_ptr<TestClient> client;
};

}  // namespace

TEST_CASE("reports of a client that are lost, late or repeated change nothing in the end") {
  Ledger ledger;
  ledger.add_report(written({1}, 100, 4));
  ledger.add_report(written({2}, 1000, 3));
  ledger.add_report(written({1}, 300, 5));
  ledger.add_report(written({1}, 300, 5));
  ledger.add_report(written({1}, 200, 4));
  CHECK(ledger.totals().writers.closed_bytes == 1300);
  CHECK(ledger.totals().writers.open_to_close_ns == 2600);
  CHECK(ledger.totals().writers.committed_bytes == 1300);
  CHECK(ledger.totals().writers.open_to_commit_ns == 3900);
  CHECK(ledger.totals().writers.longest_call_ns == 5 * kSecond);
  ledger.add_last_report(written({2}, 1500));
  CHECK(ledger.totals().writers.closed_bytes == 1800);
}

TEST_CASE("reads are added up over clients, each by where it came from") {
  Ledger ledger;
  msg::WriterTotals reader;
  reader.first = {1};
  ledger.add_report(reader, {100, 10, 1});
  ledger.add_report(reader, {300, 10, 5});
  ledger.add_report(reader, {200, 10, 3});  // a late report
  reader.first = {2};
  ledger.add_report(reader, {1000, 0, 0});
  ledger.add_last_report(reader, {2000, 7, 0});
  CHECK(ledger.totals().readers == msg::ReaderTotals{2300, 17, 5});
}

TEST_CASE("readers are those of the clients that are there") {
  Scene scene;
  const auto count = [&] {
    const auto reply = scene.client->call(msg::StatPool{});
    REQUIRE(reply);
    return reply->reader_count;
  };
  {
    TestClient reader(scene, "reader");
    msg::ClientHeartbeat beat{reader.id};
    beat.reader_count = 3;
    REQUIRE(reader.call(beat));
    beat.client = scene.client->id;
    beat.reader_count = 1;
    REQUIRE(scene.client->call(beat));
    CHECK(count() == 4);
    beat.reader_count = 0;
    REQUIRE(scene.client->call(beat));
    CHECK(count() == 3);
  }
  scene.live(limits::kLease + 1s);
  CHECK(count() == 0);
}

TEST_CASE("a client that comes back is counted once, under whatever number") {
  Scene scene;
  auto writer = std::make_unique<TestClient>(scene, "writer");
  const ClientId first = writer->id;
  REQUIRE(writer->call(msg::ClientHeartbeat{writer->id, written(first, 100)}));
  // The client's link is lost: the client keeps its number.
  writer->disconnect();
  writer->connect();
  writer->register_now();
  REQUIRE(writer->id == first);
  REQUIRE(writer->call(msg::ClientHeartbeat{writer->id, written(first, 250)}));
  CHECK(totals_of(*scene.client).writers.closed_bytes == 250);
  // The client is silent for longer than its lease: it gets another number.
  writer->disconnect();
  scene.live(limits::kLease + 1s);
  CHECK(totals_of(*scene.client).writers.closed_bytes == 250);
  writer->connect();
  writer->register_now();
  REQUIRE(writer->id != first);
  REQUIRE(writer->call(msg::ClientHeartbeat{writer->id, written(first, 300)}));
  CHECK(totals_of(*scene.client).writers.closed_bytes == 300);
  REQUIRE(writer->call(msg::GoodbyeClient{writer->id, written(first, 350)}));
  CHECK(totals_of(*scene.client).writers.closed_bytes == 350);
}

TEST_CASE("what a client has told stays when it dies, and another one is added to it") {
  Scene scene;
  {
    TestClient writer(scene, "writer");
    REQUIRE(writer.call(msg::ClientHeartbeat{writer.id, written(writer.id, 100)}));
  }
  scene.live(limits::kLease + 1s);
  TestClient other(scene, "other");
  REQUIRE(other.call(msg::ClientHeartbeat{other.id, written(other.id, 10)}));
  CHECK(totals_of(*scene.client).writers.closed_bytes == 110);
}

TEST_CASE("a restarted manager hears all from clients that live, and knows images by itself") {
  Scene scene("/drain");
  const ClientId first = scene.client->id;
  REQUIRE(scene.client->write("app.N0.T1", 1000, 7));
  REQUIRE(scene.client->write("app.N1.T1", 1000, 7));  // equal content
  REQUIRE(scene.client->write("app.N2.T1", 500, 8));
  REQUIRE(scene.client->call(msg::ClientHeartbeat{scene.client->id, written(first, 2500)}));
  scene.live(2s);
  const auto check = [&] {
    const msg::PoolTotals totals = totals_of(*scene.client);
    CHECK(totals.images == 3);
    CHECK(totals.written_bytes == 2500);
    CHECK(totals.stored_bytes == 1500);
    CHECK(totals.drained_images == 3);
    CHECK(totals.drained_bytes == 2500);
  };
  check();
  SECTION("by its journal") {}
  SECTION("by a snapshot of it") {
    scene.journal.set_snapshot_every(1);
    scene.live(1s);
  }
  scene.begin_again();
  check();
  CHECK(totals_of(*scene.client).writers.closed_bytes == 0);
  REQUIRE(scene.client->call(msg::ClientHeartbeat{scene.client->id, written(first, 2600)}));
  CHECK(totals_of(*scene.client).writers.closed_bytes == 2600);
}

TEST_CASE("a file is an image when it comes to have bytes, and again when it is written anew") {
  Scene scene;
  TestClient& client = *scene.client;
  const auto opened = client.create("a", 1 << 20);
  REQUIRE(opened);
  const SessionId session = opened->session;
  const Grant grant = opened->grants.at(0);
  REQUIRE(client.call(msg::Commit{session}));  // commits empty first, as a shell's redirection does
  CHECK(totals_of(client).images == 0);
  REQUIRE(client.call(TestClient::commit_of(session, grant, 0, 1000, 7)));
  REQUIRE(client.call(TestClient::commit_of(session, grant, 1088, 1000, 8, 1000)));
  CHECK(totals_of(client).images == 1);
  CHECK(totals_of(client).written_bytes == 2000);
  auto anew = TestClient::commit_of(session, grant, 2176, 500, 9);
  anew.cut_before = true;
  REQUIRE(client.call(anew));
  CHECK(totals_of(client).images == 2);
  CHECK(totals_of(client).written_bytes == 2500);
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a"}));
  CHECK(totals_of(client).images == 2);
  // The removed file cannot be opened any more, so its bytes do not count.
  REQUIRE(client.call(TestClient::commit_of(session, grant, 4096, 1000, 10, 0)));
  CHECK(totals_of(client).written_bytes == 2500);
}

TEST_CASE("with one copy an image is at risk until it is drained or removed") {
  Scene scene("/drain");
  scene.benefactor->hold_back = true;
  scene.live(3s);
  CHECK(scene.at_risk() == 0);
  REQUIRE(scene.client->write("app.N0.T1", 1000, 7));
  scene.live(3s);
  CHECK(std::abs(scene.at_risk() - 3) < 0.5);
  scene.benefactor->let_go();
  scene.live(1s);
  const double drained = scene.at_risk();
  scene.live(3s);
  CHECK(scene.at_risk() == drained);
  scene.benefactor->hold_back = true;
  REQUIRE(scene.client->write("app.N1.T1", 1000, 8));
  scene.live(2s);
  CHECK(std::abs(scene.at_risk() - drained - 2) < 0.5);
  REQUIRE(scene.client->call(msg::Remove{scene.client->id, kRootFile, "app.N1.T1"}));
  scene.live(1s);
  const double removed = scene.at_risk();
  scene.live(3s);
  CHECK(scene.at_risk() == removed);
  scene.benefactor->let_go();
}

TEST_CASE("with several copies an image is at risk until they are made, and when one is lost") {
  HostsPool pool(2, {"x", "y", "z"}, kArena);
  const auto at_risk = [&] { return totals_of(*pool.client).at_risk_ns; };
  for (auto& each : pool.benefactors) each->hold_back = true;
  REQUIRE(pool.client->write("a", 100000, 7));
  REQUIRE(pool.client->write("b", 100000, 8));
  pool.live(3s);
  CHECK(at_risk() >= 2 * kSecond);
  for (auto& each : pool.benefactors) each->let_go();
  pool.live(10s);
  const std::uint64_t made = at_risk();
  pool.live(5s);
  CHECK(at_risk() == made);
  pool.benefactors[0]->disconnect();
  pool.benefactors[1]->disconnect();
  pool.live(15s);  // no benefactor is left to make the copies again
  CHECK(at_risk() > made);
}

TEST_CASE("a set that was not drained when the next one came is counted") {
  Scene scene("/drain");
  REQUIRE(scene.client->write("app.N0.T1", 1000, 7));
  REQUIRE(scene.client->write("app.N1.T1", 1000, 8));
  scene.live(2s);
  CHECK(totals_of(*scene.client).sets == 0);
  scene.benefactor->hold_back = true;
  REQUIRE(scene.client->write("app.N0.T2", 1000, 9));
  scene.live(1s);
  CHECK(totals_of(*scene.client).sets == 1);
  CHECK(totals_of(*scene.client).sets_overtaken == 0);
  scene.live(5s);
  REQUIRE(scene.client->write("app.N0.T3", 1000, 10));
  REQUIRE(scene.client->write("app.N1.T3", 1000, 11));
  REQUIRE(scene.client->write("other.N0.T9", 1000, 12));
  REQUIRE(scene.client->write("app.N1.T2", 1000, 13));  // late
  CHECK(totals_of(*scene.client).sets == 2);
  CHECK(totals_of(*scene.client).sets_overtaken == 1);
  scene.benefactor->let_go();
}

TEST_CASE("a directory that is a set and was not drained when the next one came is counted") {
  Training training("/drain");
  Trainer trainer(training.client);
  trainer.set_policy("set=directory set-names=step-* marker=.metadata");
  for (const char* const name : {"step-1", "step-2", "step-3"}) trainer.make_directory(name);
  const auto save = [&](const std::string& step) {
    for (const char* const file : {"/0.distcp", "/1.distcp", "/.metadata"}) {
      trainer.write(step + file);
    }
  };
  save("step-1");
  training.live(6);
  CHECK(totals_of(training.client).sets == 0);
  training.benefactor.hold_back = true;
  save("step-2");
  training.live(6);
  CHECK(totals_of(training.client).sets == 1);
  CHECK(totals_of(training.client).sets_overtaken == 0);
  save("step-3");
  trainer.write("step-2/0.distcp");  // late
  CHECK(totals_of(training.client).sets == 2);
  CHECK(totals_of(training.client).sets_overtaken == 1);
  training.benefactor.let_go();
}

TEST_CASE("images of several timesteps that are copied at once overtake no drain") {
  Scene scene("/drain");
  scene.benefactor->hold_back = true;
  for (const char* name : {"app.N0.T1", "app.N0.T2", "app.N0.T3"}) {
    REQUIRE(scene.client->write(name, 1000, 7));
    scene.live(1s);
  }
  CHECK(totals_of(*scene.client).sets == 2);
  CHECK(totals_of(*scene.client).sets_overtaken == 0);
  scene.live(5s);
  REQUIRE(scene.client->write("app.N0.T4", 1000, 8));
  CHECK(totals_of(*scene.client).sets_overtaken == 1);
  scene.benefactor->let_go();
}

TEST_CASE("writers that wait for room, how long, and how full the pool was") {
  Scene scene("/drain", 4 * limits::kMiB);
  scene.benefactor->hold_back = true;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(scene.client->write("app.N" + std::to_string(i) + ".T1", 1 << 20, 0));
  }
  scene.live(1s);
  CHECK(totals_of(*scene.client).space_waits == 0);
  const auto opened = scene.client->create("app.N3.T1");
  REQUIRE(opened);
  const msg::Place place{opened->session, {}, 2 << 20, {}, {}, 1 << 20};
  CHECK(scene.client->call(place).error().code == Code::kNoSpace);
  scene.live(2s);
  scene.benefactor->let_go();
  scene.live(2s);
  REQUIRE(scene.client->call(place));
  const msg::PoolTotals totals = totals_of(*scene.client);
  CHECK(totals.space_waits == 1);
  CHECK(totals.space_wait_ns >= 4 * kSecond);
  CHECK(totals.space_wait_ns < 10 * kSecond);
  CHECK(totals.fullest_permille >= 750);
  CHECK(totals.fullest_permille <= 1000);
}
