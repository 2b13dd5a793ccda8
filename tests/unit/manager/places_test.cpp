// Tests chunks that their client has written to several places.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/policy/redundancy.h"
#include "manager/service/service.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

/// A chunk that a client has written to two places.
struct TwoPlaces {
  explicit TwoPlaces(Policy policy = {}) {
    world.config.pool.copies = 2;
    world.config.policy = std::move(policy);
    world.start();
    for (std::uint64_t i = 1; i <= 3; ++i) {
      const std::string name = "b" + std::to_string(i);
      benefactors.push_back(std::make_unique<TestBenefactor>(world, name, i, kArena, name));
    }
    client.emplace(world, "client");
    msg::OpenSession open;
    open.client = client->id;
    open.parent = kRootFile;
    open.name = "a";
    open.want_bytes = extent_bytes(1000);
    open.waits_for_copies = true;
    const auto opened = client->call(open);
    REQUIRE(opened);
    REQUIRE(opened->grants.size() == 2);
    commit = TestClient::commit_of(opened->session, opened->grants[0], 0, 1000, 7);
    commit.written.chunks[0].copies.push_back(
        {opened->grants[1].benefactor, opened->grants[1].offset});
    for (const Extent& copy : commit.written.chunks[0].copies) {
      places.push_back(std::ranges::find(benefactors, copy.benefactor, &TestBenefactor::id)->get());
    }
    file = opened->attributes.id;
  }
  void live(Duration time) {
    for (Duration passed{}; passed < time; passed += std::chrono::seconds(1)) {
      world.pass(std::chrono::seconds(1));
      for (const auto& each : benefactors) {
        if (each->peer_lives()) each->beat();
      }
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    }
  }
  std::vector<Extent> told() const { return commit.written.chunks[0].copies; }
  std::vector<Extent> copies() const {
    const State& state = world.service->state();
    return state.chunks().get(state.file(file)->newest.slices.at(0).chunk).copies;
  }

  World world;
  std::vector<std::unique_ptr<TestBenefactor>> benefactors;
  std::optional<TestClient> client;
  std::vector<TestBenefactor*> places;
  msg::Commit commit;
  FileId file;
};

}  // namespace

TEST_CASE("who waits for all copies is told in how many places to write, others in one") {
  World world;
  world.config.pool.copies = 3;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto places = [&](std::uint32_t copies, bool waits) {
    static int made = 0;
    msg::OpenSession open;
    open.client = client.id;
    open.parent = kRootFile;
    open.name = "f" + std::to_string(++made);
    open.copies = copies;
    open.waits_for_copies = waits;
    const auto opened = client.call(open);
    REQUIRE(opened);
    return opened->places;
  };
  CHECK(places(0, false) == 1);
  CHECK(places(0, true) == 3);
  CHECK(places(2, true) == 2);
  CHECK(places(parse_redundancy("ec(4,1)")->number(), true) == 1);
}

TEST_CASE("a chunk in two places is committed with both, and no copy is made") {
  TwoPlaces pool;
  REQUIRE(pool.client->call(pool.commit));
  CHECK(pool.copies() == pool.told());
  pool.live(2s);
  for (const auto& each : pool.benefactors) CHECK(each->all<msg::CopyExtents>().empty());
  CHECK(pool.world.service->services().administration.audit().reply().broken.empty());
}

TEST_CASE("a commit does not wait for a silent benefactor whose chunks are elsewhere, too") {
  TwoPlaces pool;
  pool.places[0]->disconnect();
  const Time before = pool.world.clock.now();
  REQUIRE(pool.client->call(pool.commit));
  CHECK(pool.world.clock.now() == before);
}

TEST_CASE("a place whose benefactor has gone is left out of the commit, and made up for") {
  TwoPlaces pool;
  pool.places[0]->disconnect();
  pool.live(12s);
  REQUIRE(pool.world.service->pool().is_presumed_lost(pool.places[0]->id));
  REQUIRE(pool.client->call(pool.commit));
  CHECK(pool.copies().front() == pool.told().back());
  pool.live(2s);
  CHECK(pool.copies().size() == 2);
  CHECK(pool.world.service->services().administration.audit().reply().broken.empty());
  SECTION("it is not told of again when it comes back") {
    pool.places[0]->connect();
    pool.places[0]->register_now();
    pool.commit.set_size = true;
    pool.commit.size_bytes = 1000;
    REQUIRE(pool.client->call(pool.commit));
    CHECK(std::ranges::count(pool.copies(), pool.told().front()) == 0);
    CHECK(pool.world.service->services().administration.audit().reply().broken.empty());
  }
}

TEST_CASE("a chunk that is in none of its places is not committed") {
  TwoPlaces pool;
  for (TestBenefactor* const each : pool.places) each->disconnect();
  pool.live(12s);
  CHECK(pool.client->call(pool.commit).error().code == Code::kDataLost);
}

TEST_CASE("proof=checksum leaves out a place that is wrong, and fails when none is right") {
  TwoPlaces pool(parse_policy("proof=checksum").value());
  pool.places[1]->wrong = {pool.told()[1].offset};
  SECTION("one is wrong") {
    REQUIRE(pool.client->call(pool.commit));
    CHECK(pool.copies() == std::vector<Extent>{pool.told()[0]});
  }
  SECTION("both are") {
    pool.places[0]->wrong = {pool.told()[0].offset};
    CHECK(pool.client->call(pool.commit).error().code == Code::kDataLost);
  }
}
