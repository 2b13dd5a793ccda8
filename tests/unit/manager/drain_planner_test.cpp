#include "manager/drain_planner.h"

#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;

/// Time passes while all benefactors stay alive.
void run(World& world, Duration time, std::vector<TestBenefactor*> benefactors,
         TestClient* client = nullptr) {
  for (Duration passed{}; passed < time; passed += 500ms) {
    world.pass(500ms);
    for (TestBenefactor* one : benefactors) one->beat();
    if (client != nullptr) REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
  }
}

}  // namespace

TEST_CASE(
    "a committed file is drained: pieces from each benefactor, then its name, then recorded") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto file = client.write("a", 1000, 7);
  REQUIRE(file);
  run(world, 1s, {&one});
  REQUIRE(one.all<msg::DrainPieces>().size() == 1);
  const auto pieces = one.all<msg::DrainPieces>()[0];
  CHECK(pieces.file == *file);
  REQUIRE(pieces.pieces.size() == 1);
  CHECK(pieces.pieces[0].length == 1000);
  REQUIRE(one.all<msg::DrainFinish>().size() == 1);
  CHECK(one.all<msg::DrainFinish>()[0].path == "a");
  CHECK(one.all<msg::DrainFinish>()[0].size_bytes == 1000);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("an empty file is drained by a request without pieces, which makes the temporary file") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a");
  REQUIRE(open);
  msg::Commit commit;
  commit.session = open->session;
  commit.end = true;
  REQUIRE(client.call(commit));
  run(world, 1s, {&one});
  REQUIRE(one.all<msg::DrainPieces>().size() == 1);
  CHECK(one.all<msg::DrainPieces>()[0].pieces.empty());
  CHECK(one.all<msg::DrainFinish>().size() == 1);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("the name is asked at the finish: a rename during the copy is followed") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hold_back = true;
  REQUIRE(client.write("a", 1000, 7));
  run(world, 1s, {&one});
  REQUIRE(one.held.size() == 1);
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", kRootFile, "b"}));
  one.hold_back = false;
  one.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 1s, {&one});
  REQUIRE(one.all<msg::DrainFinish>().size() == 1);
  CHECK(one.all<msg::DrainFinish>()[0].path == "b");
}

TEST_CASE("changes of names are repeated in order, and a file waits for the changes of its path") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.fail_with = Code::kDeadline;
  const auto made = client.call(msg::MakeDirectory{client.id, kRootFile, "d", 0755});
  REQUIRE(made);
  REQUIRE(client.write("a", 1000, 7));
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", made->attributes.id, "a"}));
  run(world, 3s, {&one});
  CHECK(one.all<msg::DrainFinish>().empty());
  CHECK_FALSE(one.all<msg::MirrorChange>().empty());
  one.fail_with = Code{};
  one.served.clear();
  run(world, 8s, {&one});
  REQUIRE(one.all<msg::MirrorChange>().size() == 1);
  CHECK(one.all<msg::MirrorChange>()[0].kind == msg::MirrorKind::kMakeDirectory);
  REQUIRE(one.all<msg::DrainFinish>().size() == 1);
  CHECK(one.all<msg::DrainFinish>()[0].path == "d/a");
  CHECK(world.service->state().mirror_queue().empty());
}

TEST_CASE("a benefactor that fails stalls only its own files") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor bad(world, "b1", 1, 2 * kArena);
  TestClient client(world, "client");
  bad.fail_with = Code::kDrainFailed;
  REQUIRE(client.write("a", 1000, 7));
  TestBenefactor good(world, "b2", 2, 4 * kArena);
  REQUIRE(client.write("b", 1000, 8));
  run(world, 3s, {&bad, &good}, &client);
  CHECK(client.lookup("b")->drain == DrainState::kDrained);
  CHECK(client.lookup("a")->drain == DrainState::kFailed);
  bad.fail_with = Code{};
  run(world, 10s, {&bad, &good}, &client);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("M5: under pressure drained files are given up, oldest first, and undrained ones never") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  REQUIRE(client.write("old", 1 << 20, 0));
  REQUIRE(client.write("new", 1 << 20, 0));
  run(world, 1s, {&one}, &client);
  one.fail_with = Code::kDrainFailed;
  REQUIRE(client.write("c", 1 << 20, 0));
  REQUIRE(client.write("d", 1 << 20, 0));
  CHECK(world.service->state().evictable().size() <= 1);
  const auto old_id = client.lookup("old")->id;
  const auto map = client.call(msg::GetMap{client.id, old_id});
  REQUIRE(map);
  CHECK(map->page.chunks.at(0).copies.empty());
  CHECK(map->drained_path == "old");
  run(world, 1s, {&one}, &client);
  while (client.write("x" + std::to_string(world.clock.wall_ns()), 1 << 20, 0)) one.beat();
  const auto kept = client.call(msg::GetMap{client.id, client.lookup("c")->id});
  REQUIRE(kept);
  CHECK(kept->page.chunks.at(0).copies.size() == 1);
}

TEST_CASE(
    "a file with evicted ranges takes them from its drained version when it is drained again") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const auto file = client.write("a", 1 << 20, 0);
  REQUIRE(file);
  run(world, 1s, {&one}, &client);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 0));
    run(world, 1s, {&one}, &client);
  }
  one.served.clear();
  const auto open = client.open(*file);
  REQUIRE(open);
  const auto placed = client.call(msg::Place{open->session, {}, 4096, {}, {}});
  REQUIRE(placed);
  auto commit = TestClient::commit_of(open->session, placed->grants.at(0), 0, 1000, 0, 1 << 20);
  commit.end = true;
  REQUIRE(client.call(commit));
  run(world, 1s, {&one}, &client);
  bool from_base = false;
  for (const auto& request : one.all<msg::DrainPieces>()) {
    if (request.file != *file) continue;
    from_base |= request.base_path == "a" && request.pieces.size() == 2 &&
                 request.pieces[0].extent_offset == msg::kNoExtent;
  }
  CHECK(from_base);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("a drained file is not replaced while a reader has evicted bytes of it") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const auto file = client.write("a", 1 << 20, 0);
  REQUIRE(file);
  run(world, 1s, {&one}, &client);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 0));
    run(world, 1s, {&one}, &client);
  }
  const auto read = client.call(msg::GetMap{client.id, *file});
  REQUIRE(read);
  REQUIRE(read->page.chunks.at(0).copies.empty());
  const auto open = client.open(*file);
  REQUIRE(open);
  const auto placed = client.call(msg::Place{open->session, {}, 4096, {}, {}});
  REQUIRE(placed);
  auto commit = TestClient::commit_of(open->session, placed->grants.at(0), 0, 1000, 0, 1 << 20);
  commit.end = true;
  REQUIRE(client.call(commit));
  run(world, 5s, {&one}, &client);
  CHECK(client.lookup("a")->drain != DrainState::kDrained);
  REQUIRE(client.call(msg::Unpin{client.id, *file, read->attributes.version}));
  run(world, 2s, {&one}, &client);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}
