#include "manager/drain/drain_planner.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "tests/unit/manager/world.h"
#include "transport/fault/fault.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;

/// Lets time pass while all benefactors stay alive.
void run(World& world, Duration time, std::vector<TestBenefactor*> benefactors,
         TestClient* client = nullptr) {
  for (Duration passed{}; passed < time; passed += 500ms) {
    world.pass(500ms);
    for (TestBenefactor* one : benefactors) one->beat();
    if (client != nullptr) REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
  }
}

std::vector<msg::MirrorChange> changes(const TestBenefactor& benefactor, msg::MirrorKind kind) {
  std::vector<msg::MirrorChange> out;
  for (const auto& change : benefactor.all<msg::MirrorChange>()) {
    if (change.kind == kind) out.push_back(change);
  }
  return out;
}

/// File "a" has one chunk of 1 MiB, which only the drain directory holds.
FileId evicted_file(World& world, TestBenefactor& one, TestClient& client) {
  const auto file = client.write("a", 1 << 20, 0);
  REQUIRE(file);
  run(world, 1s, {&one}, &client);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 0));
    run(world, 1s, {&one}, &client);
  }
  one.served.clear();
  return *file;
}

/// Commits a small chunk after the first MiB.
void append_to(TestClient& client, FileId file) {
  const auto open = client.open(file);
  REQUIRE(open);
  const auto placed = client.call(msg::Place{open->session, {}, 4096, {}, {}});
  REQUIRE(placed);
  auto commit = TestClient::commit_of(open->session, placed->grants.at(0), 0, 1000, 0, 1 << 20);
  commit.end = true;
  REQUIRE(client.call(commit));
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
  CHECK(changes(one, msg::MirrorKind::kMakeDirectory).size() == 1);
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
  CHECK(world.service->state().commits().evictable().size() <= 1);
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
  const FileId file = evicted_file(world, one, client);
  append_to(client, file);
  run(world, 1s, {&one}, &client);
  bool from_base = false;
  for (const auto& request : one.all<msg::DrainPieces>()) {
    if (request.file != file) continue;
    from_base |= request.base_path == "a" && request.pieces.size() == 2 &&
                 request.pieces[0].extent_offset == msg::kNoExtent;
  }
  CHECK(from_base);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("a drained file that a reader has is set aside before a newer one takes its name") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const FileId file = evicted_file(world, one, client);
  const auto read = client.call(msg::GetMap{client.id, file});
  REQUIRE(read);
  REQUIRE(read->page.chunks.at(0).copies.empty());
  CHECK(read->drained_path == "a");
  append_to(client, file);
  run(world, 2s, {&one}, &client);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
  const auto asides = changes(one, msg::MirrorKind::kSetAside);
  REQUIRE(asides.size() == 1);
  CHECK(asides[0].path == "a");
  const auto older = client.call(msg::GetMap{client.id, file, read->attributes.version});
  REQUIRE(older);
  CHECK(older->drained_path == ".stdchk-drain/" + msg::temporary_name(file, asides[0].number));
  CHECK(client.call(msg::GetMap{client.id, file})->drained_path == "a");
  REQUIRE(client.call(msg::Unpin{client.id, file, read->attributes.version}));
  run(world, 1s, {&one}, &client);
  const auto dropped = changes(one, msg::MirrorKind::kDropTemporary);
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].number == asides[0].number);
}

TEST_CASE("an evicted file that loses its name while open stays readable until it is let go") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const FileId file = evicted_file(world, one, client);
  const auto read = client.call(msg::GetMap{client.id, file});
  REQUIRE(read);
  const bool replaced = GENERATE(false, true);
  if (replaced) {
    REQUIRE(client.call(msg::Rename{client.id, kRootFile, "f3", kRootFile, "a"}));
  } else {
    REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a", false}));
  }
  const auto again = client.call(msg::GetMap{client.id, file, read->attributes.version});
  REQUIRE(again);
  const auto asides = changes(one, msg::MirrorKind::kSetAside);
  REQUIRE(asides.size() == 1);
  CHECK(again->drained_path == ".stdchk-drain/" + msg::temporary_name(file, asides[0].number));
  // The old file is set aside before the change that replaces its name.
  CHECK(one.all<msg::MirrorChange>().front().kind == msg::MirrorKind::kSetAside);
  REQUIRE(client.call(msg::Unpin{client.id, file, read->attributes.version}));
  // The manager keeps a replaced file for 2 s.
  run(world, replaced ? 3s : 1s, {&one}, &client);
  CHECK(changes(one, msg::MirrorKind::kDropTemporary).size() == 1);
}

TEST_CASE("a drained file that nobody has open is removed without being set aside") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.write("a", 1000, 7));
  run(world, 1s, {&one});
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a", false}));
  run(world, 1s, {&one});
  CHECK(changes(one, msg::MirrorKind::kSetAside).empty());
  CHECK(changes(one, msg::MirrorKind::kUnlink).size() == 1);
  CHECK(world.service->state().mirror_queue().empty());
}

TEST_CASE("where evicted bytes are is not told while a rename is not repeated yet") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const FileId file = evicted_file(world, one, client);
  one.hold_back = true;
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", kRootFile, "b"}));
  run(world, 1s, {&one}, &client);
  REQUIRE(one.held.size() == 1);
  const msg::GetMap request{client.id, file};
  std::optional<rpc::Answer> answer;
  client.peer().call(request, limits::kCallDeadline,
                     [&](rpc::Answer got) { answer = std::move(got); });
  run(world, 3s, {&one}, &client);
  CHECK_FALSE(answer);
  one.hold_back = false;
  one.held[0](msg::Reply{msg::MirrorChange::Reply{}});
  world.turn();
  REQUIRE(answer);
  REQUIRE(*answer);
  CHECK(std::get<msg::GetMap::Reply>(**answer).drained_path == "b");
}

TEST_CASE("a map that waits for the drain directory is answered busy before its deadline") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const FileId file = evicted_file(world, one, client);
  one.fail_with = Code::kDrainFailed;
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", kRootFile, "b"}));
  std::optional<rpc::Answer> answer;
  client.peer().call(msg::GetMap{client.id, file}, limits::kCallDeadline,
                     [&](rpc::Answer got) { answer = std::move(got); });
  run(world, limits::kCallDeadline, {&one}, &client);
  REQUIRE(answer);
  REQUIRE_FALSE(*answer);
  CHECK(answer->error().error.code == Code::kBusy);
}

TEST_CASE("a rename waits while a drain reads the file under its earlier name") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  const FileId file = evicted_file(world, one, client);
  one.hold_back = true;
  append_to(client, file);
  run(world, 1s, {&one}, &client);
  const auto pieces = one.all<msg::DrainPieces>();
  REQUIRE(pieces.size() == 1);
  REQUIRE(pieces[0].base_path == "a");
  CHECK(pieces[0].base_uid != msg::kUnknownUid);
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", kRootFile, "b"}));
  run(world, 1s, {&one}, &client);
  CHECK(changes(one, msg::MirrorKind::kRename).empty());
  one.hold_back = false;
  one.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 1s, {&one}, &client);
  CHECK(changes(one, msg::MirrorKind::kRename).size() == 1);
  REQUIRE(one.all<msg::DrainFinish>().size() == 1);
  CHECK(one.all<msg::DrainFinish>()[0].path == "b");
}

TEST_CASE("a finish whose answer was lost is repeated at the same benefactor, by the same name") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestBenefactor two(world, "b2", 2, kArena);
  TestClient client(world, "client");
  one.hold_back = two.hold_back = true;
  REQUIRE(client.write("a", 1000, 7));
  run(world, 1s, {&one, &two}, &client);
  TestBenefactor& at = one.held.empty() ? two : one;
  REQUIRE(at.held.size() == 1);
  at.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 1s, {&one, &two}, &client);
  REQUIRE(at.held.size() == 2);
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "a", kRootFile, "b"}));
  at.held[1](tl::unexpected(rpc::Failure{{Code::kDeadline, 0, "test"}, {}, {}}));
  run(world, 1s, {&one, &two}, &client);
  const auto finishes = at.all<msg::DrainFinish>();
  REQUIRE(finishes.size() == 2);
  CHECK(finishes[1] == finishes[0]);
  // The rename waits: the unanswered finish may still give the file its earlier name.
  const auto renames = [&] {
    return changes(one, msg::MirrorKind::kRename).size() +
           changes(two, msg::MirrorKind::kRename).size();
  };
  CHECK(renames() == 0);
  at.held[2](msg::Reply{msg::DrainFinish::Reply{}});
  run(world, 1s, {&one, &two}, &client);
  CHECK(renames() == 1);
}

TEST_CASE("a benefactor that is lost at the finish leaves it to another one when it is too late") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor lost(world, "b1", 1, kArena);
  TestClient client(world, "client");
  lost.hold_back = true;
  REQUIRE(client.write("a", 1000, 7));
  run(world, 1s, {&lost}, &client);
  REQUIRE(lost.held.size() == 1);
  lost.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 1s, {&lost}, &client);
  const auto asked = lost.all<msg::DrainFinish>();
  REQUIRE(asked.size() == 1);
  TestBenefactor other(world, "b2", 2, kArena);
  lost.disconnect();
  run(world, 40s, {&other}, &client);
  CHECK(other.all<msg::DrainFinish>().empty());
  run(world, 10s, {&other}, &client);
  CHECK(other.all<msg::DrainFinish>() == asked);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

/// A file of two parts on two benefactors. The first part is written and verified, the second is
/// requested.
struct TwoParts {
  TwoParts() {
    world.config.pool.stripe_width = 1;
    world.start();
    one.emplace(world, "b1", 1, kArena);
    client.emplace(world, "client");
    one->hold_back = true;
    file = *client->write("a", 1 << 20, 7);
    run(world, 1s, {&*one}, &*client);
    two.emplace(world, "b2", 2, 4 * kArena);
    two->hold_back = true;
    append_to(*client, file);
    one->let_go();
    run(world, 1s, {&*one, &*two}, &*client);
    REQUIRE(attempts(*one).size() == 2);  // the first attempt belongs to the previous version
    REQUIRE(attempts(*two).size() == 1);
    CHECK(attempts(*one)[1].pieces.size() == 1);
    CHECK(attempts(*two)[0].pieces.size() == 1);
    CHECK(number() == attempts(*one)[1].number);
  }
  static std::vector<msg::DrainPieces> attempts(const TestBenefactor& at) {
    return at.all<msg::DrainPieces>();
  }
  std::uint64_t number() const { return attempts(*two)[0].number; }
  void come_back() {
    two->hold_back = false;
    two->held.clear();
    two->held_requests.clear();
    two->connect();
    two->register_now();
  }

  World world{"/drain"};
  std::optional<TestBenefactor> one, two;
  std::optional<TestClient> client;
  FileId file;
};

TEST_CASE("what was verified before a benefactor was lost is not written again") {
  TwoParts f;
  f.two->disconnect();
  run(f.world, 5s, {&*f.one}, &*f.client);
  CHECK(f.client->lookup("a")->drain == DrainState::kFailed);
  f.come_back();
  run(f.world, 10s, {&*f.one, &*f.two}, &*f.client);
  CHECK(f.client->lookup("a")->drain == DrainState::kDrained);
  CHECK(f.attempts(*f.one).size() == 2);
  REQUIRE(f.attempts(*f.two).size() == 2);
  CHECK(f.attempts(*f.two)[1] == f.attempts(*f.two)[0]);
  // A late write by the lost benefactor leaves no file behind.
  CHECK(changes(*f.one, msg::MirrorKind::kDropTemporary).size() == 1);  // of the previous version
  run(f.world, 40s, {&*f.one, &*f.two}, &*f.client);
  auto dropped = changes(*f.one, msg::MirrorKind::kDropTemporary);
  for (const auto& change : changes(*f.two, msg::MirrorKind::kDropTemporary))
    dropped.push_back(change);
  CHECK(std::ranges::count(dropped, f.number(), &msg::MirrorChange::number) == 1);
}

TEST_CASE("chunks that fail their checksum are all that is written again") {
  TwoParts f;
  f.two->hold_back = false;
  f.two->held[0](msg::Reply{msg::DrainPieces::Reply{{0}}});
  run(f.world, 10s, {&*f.one, &*f.two}, &*f.client);
  CHECK(f.attempts(*f.one).size() == 2);
  REQUIRE(f.attempts(*f.two).size() == 2);
  CHECK(f.attempts(*f.two)[1].number == f.number());
}

TEST_CASE(
    "chunks that were moved while a benefactor read them are drained at once, without a warning") {
  TwoParts f;
  f.two->hold_back = false;
  const auto& slices = f.world.service->state().file(f.file)->newest.slices;
  MoveChunks move{f.two->id, {}};
  for (const PackedSlice& slice : slices) {
    for (const Extent& copy : f.world.service->state().chunks().get(slice.chunk).copies) {
      if (copy.benefactor == f.two->id) move.moves.push_back({copy.offset, kArena / 2});
    }
  }
  REQUIRE(move.moves.size() == 1);
  REQUIRE(f.world.service->pool().space().take_exactly(
      f.two->id, {kArena / 2, extent_bytes(f.attempts(*f.two)[0].pieces[0].chunk_length)}));
  f.world.service->pool().execute(move, [](const Result<Affected>& done) { REQUIRE(done); });
  f.world.turn();
  f.two->held[0](msg::Reply{msg::DrainPieces::Reply{{0}}});
  f.world.turn();
  REQUIRE(f.attempts(*f.two).size() == 2);
  CHECK(f.attempts(*f.two)[1].pieces[0].extent_offset == kArena / 2);
  run(f.world, 1s, {&*f.one, &*f.two}, &*f.client);
  CHECK(f.client->lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("a drain whose storage fails starts over in another file") {
  TwoParts f;
  f.two->hold_back = false;
  f.two->held[0](tl::unexpected(rpc::Failure{{Code::kDrainFailed, EIO, "test"}, {}, {}}));
  run(f.world, 10s, {&*f.one, &*f.two}, &*f.client);
  CHECK(f.client->lookup("a")->drain == DrainState::kDrained);
  REQUIRE(f.attempts(*f.one).size() == 3);
  CHECK(f.attempts(*f.one)[2].number != f.number());
}

TEST_CASE("what an attempt has left goes when its version does, and when space is short") {
  TwoParts f;
  f.two->disconnect();
  const auto dropped = [&] {
    const auto all = changes(*f.one, msg::MirrorKind::kDropTemporary);
    return std::ranges::count(all, f.number(), &msg::MirrorChange::number);
  };
  run(f.world, 40s, {&*f.one}, &*f.client);
  CHECK(dropped() == 0);
  SECTION("its version") { REQUIRE(f.client->call(msg::Remove{f.client->id, kRootFile, "a"})); }
  SECTION("space") {
    f.one->fail_with = Code::kDrainFailed;
    f.one->fail_errno = ENOSPC;
    REQUIRE(f.client->write("b", 1000, 9));
    run(f.world, 1s, {&*f.one}, &*f.client);
    f.one->fail_with = Code{};
  }
  run(f.world, 10s, {&*f.one}, &*f.client);
  CHECK(dropped() >= 1);
}

TEST_CASE("a change whose answer was lost is given to nobody else while it may still be done") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestBenefactor two(world, "b2", 2, kArena);
  TestClient client(world, "client");
  one.fail_with = two.fail_with = Code::kPeerLost;
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "d", 0755}));
  run(world, 5s, {&one, &two}, &client);
  const auto at_one = changes(one, msg::MirrorKind::kMakeDirectory).size();
  const auto at_two = changes(two, msg::MirrorKind::kMakeDirectory).size();
  CHECK(at_one + at_two > 2);
  CHECK(std::min(at_one, at_two) == 0);
}

TEST_CASE("a drain that is not wanted any more drops its temporary file when all have answered") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hold_back = true;
  const auto file = client.write("a", 1000, 7);
  REQUIRE(file);
  run(world, 1s, {&one}, &client);
  REQUIRE(one.held.size() == 1);
  const std::uint64_t first = one.all<msg::DrainPieces>()[0].number;
  append_to(client, *file);
  run(world, 1s, {&one}, &client);
  CHECK(changes(one, msg::MirrorKind::kDropTemporary).empty());
  one.hold_back = false;
  one.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 1s, {&one}, &client);
  const auto dropped = changes(one, msg::MirrorKind::kDropTemporary);
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].number == first);
  CHECK(one.all<msg::DrainPieces>().back().number != first);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
}

TEST_CASE("files that do not fit into the drain space together are drained one after the other") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hold_back = true;
  for (std::uint64_t i = 0; i < 3; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1000, 7 + i));
  }
  one.served.clear();
  one.held.clear();
  for (int i = 0; i < 240 && !world.service->state().commits().undrained().empty(); ++i) {
    const auto asked = std::move(one.served);
    auto held = std::move(one.held);
    one.served.clear();
    one.held.clear();
    const auto pieces = std::count_if(asked.begin(), asked.end(), [](const auto& request) {
      return std::holds_alternative<msg::DrainPieces>(request);
    });
    REQUIRE(asked.size() == held.size());
    for (std::size_t k = 0; k < held.size(); ++k) {
      // The storage has room for one temporary file only.
      if (pieces > 1 && std::holds_alternative<msg::DrainPieces>(asked[k])) {
        held[k](tl::unexpected(rpc::Failure{{Code::kDrainFailed, ENOSPC, "test"}, {}, {}}));
      } else {
        one.answer(asked[k], held[k]);
      }
    }
    run(world, 500ms, {&one}, &client);
  }
  CHECK(world.service->state().commits().undrained().empty());
}

TEST_CASE("a restarted manager changes no name before the benefactors of the one before are back") {
  World world("/drain");
  world.start();
  {
    TestBenefactor one(world, "b1", 1, kArena);
    TestBenefactor two(world, "b2", 2, kArena);
    TestClient client(world, "client");
    one.fail_with = two.fail_with = Code::kDrainFailed;
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "d", 0755}));
  }
  world.restart();
  TestBenefactor one(world, "b1", 1, kArena);
  run(world, 10s, {&one});
  CHECK(changes(one, msg::MirrorKind::kMakeDirectory).empty());
  const bool comes_back = GENERATE(true, false);
  if (comes_back) {
    TestBenefactor two(world, "b2", 2, kArena);
    run(world, 1s, {&one, &two});
  } else {
    run(world, 25s, {&one});
  }
  CHECK(world.service->state().mirror_queue().empty());
}

TEST_CASE(
    "what a restarted manager drops of the one before is not what an exchange of names uses") {
  World world("/drain");
  world.start();
  {
    TestBenefactor one(world, "b1", 1, kArena);
    TestClient client(world, "client");
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "d", 0755}));
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "e", 0755}));
    run(world, 2s, {&one}, &client);
    REQUIRE(world.service->state().mirror_queue().empty());
  }
  world.restart();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.call(msg::Rename{client.id, kRootFile, "d", kRootFile, "e", false, true}));
  run(world, 2s, {&one}, &client);
  const auto dropped = changes(one, msg::MirrorKind::kDropTemporary);
  const auto renamed = changes(one, msg::MirrorKind::kRename);
  REQUIRE(dropped.size() == 1);
  REQUIRE(renamed.size() == 3);
  constexpr std::uint64_t kOfQueue = (std::uint64_t{1} << 40) - 1;
  CHECK((dropped[0].number & kOfQueue) <= renamed[0].number);
}

TEST_CASE(
    "who waits for a benefactor when the manager ends is told nothing but the end of the link") {
  World world("/drain");
  world.start();
  transport::fault::FaultEndpoint door(world.fabric.make_endpoint("door", world.clock), world.clock,
                                       1);
  world.reactor.add(door);
  REQUIRE(door.listen(*world.service));
  TestClient client(world, "client");
  client.connect("mem:door");
  client.register_now();
  TestBenefactor one(world, "b1", 1, kArena);
  const auto file = client.write("a", 1000, 7);
  REQUIRE(file);
  run(world, 2s, {&one}, &client);
  one.hold_back = true;
  std::optional<rpc::Answer> answer;
  client.peer().call(msg::ConfirmDrained{{*file}}, limits::kCallDeadline,
                     [&](rpc::Answer got) { answer = std::move(got); });
  world.turn();
  REQUIRE(one.held.size() == 1);
  // The endpoint counts all messages as delayed.
  door.plan().delay_ppm = 1000000;
  door.plan().delay_max = 1s;
  world.stop();
  CHECK(door.counts().delayed == 0);
  world.turn();
  REQUIRE(answer);
  REQUIRE_FALSE(*answer);
  CHECK(answer->error().error.code == Code::kPeerLost);
  world.reactor.remove(door);
}

/// Names of the files in the order in which the benefactor first got pieces of each.
std::vector<FileId> order_of(const TestBenefactor& benefactor) {
  std::vector<FileId> order;
  for (const auto& pieces : benefactor.all<msg::DrainPieces>()) {
    if (std::ranges::find(order, pieces.file) == order.end()) order.push_back(pieces.file);
  }
  return order;
}

TEST_CASE("files are drained in the order in which clients ask, before what the manager chooses") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.config.policy = *parse_policy("images=1");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  // A set is chosen when it is whole; the newest of the application comes first without a request.
  one.fail_with = Code::kBusy;
  std::vector<FileId> files;
  for (std::uint64_t i = 0; i < 4; ++i) {
    files.push_back(*client.write("a.N0.T" + std::to_string(i), 1000, 7 + i));
  }
  for (const std::size_t i : {2U, 0U, 3U, 2U}) REQUIRE(client.call(msg::DrainNow{files[i]}));
  one.fail_with = Code{};
  one.served.clear();
  run(world, 5s, {&one}, &client);
  const std::vector<FileId> wanted{files[2], files[0], files[3], files[1]};
  CHECK(order_of(one) == wanted);
}

TEST_CASE("files under way are drained in the order in which clients ask, too") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hold_back = true;  // three requests are sent, the other files wait
  std::vector<FileId> files;
  for (std::uint64_t i = 0; i < 7; ++i) {
    files.push_back(*client.write("f" + std::to_string(i), 1000, 7 + i));
  }
  run(world, 1s, {&one}, &client);
  REQUIRE(one.held.size() == 3);
  for (const std::size_t i : {5U, 3U, 6U}) REQUIRE(client.call(msg::DrainNow{files[i]}));
  one.hold_back = false;
  for (auto& answer : one.held) answer(msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 3s, {&one}, &client);
  const std::vector<FileId> wanted{files[0], files[1], files[2], files[5],
                                   files[3], files[6], files[4]};
  CHECK(order_of(one) == wanted);
}

TEST_CASE("a file that a client asks for waits for no place of other files") {
  World world("/drain");
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, 512 * limits::kMiB);
  TestClient client(world, "client");
  one.hold_back = true;  // the first requests are not answered
  for (std::uint64_t i = 0; i < 40; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1000, 7 + i));
  }
  const auto last = client.write("last", 1000, 99);
  REQUIRE(last);
  run(world, 1s, {&one}, &client);
  REQUIRE(one.held.size() == 3);
  REQUIRE(client.call(msg::DrainNow{*last}));
  run(world, 500ms, {&one}, &client);
  one.held[0](msg::Reply{msg::DrainPieces::Reply{}});
  run(world, 500ms, {&one}, &client);
  REQUIRE(order_of(one).size() == 4);
  CHECK(order_of(one)[3] == *last);
}

TEST_CASE("the drain of all benefactors together keeps to its rate") {
  World world("/drain");
  world.config.drain_total_bytes_per_s = limits::kMiB;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestBenefactor two(world, "b2", 2, kArena);
  TestClient client(world, "client");
  for (std::uint64_t i = 0; i < 8; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 7 + i));
  }
  const auto asked = [&] {
    return one.all<msg::DrainPieces>().size() + two.all<msg::DrainPieces>().size();
  };
  run(world, 3s, {&one, &two}, &client);
  CHECK(asked() >= 2);
  CHECK(asked() <= 4);
  run(world, 7s, {&one, &two}, &client);
  CHECK(asked() == 8);
}

TEST_CASE("the drain yields to who writes, but for a share, and not to who waits for it") {
  World world("/drain");
  world.config.drain_yields = true;
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, 512 * limits::kMiB);
  TestClient client(world, "client");
  one.hold_back = true;
  const auto writer = client.create("open", 4096);
  REQUIRE(writer);
  for (std::uint64_t i = 0; i < 4; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 7 + i));
  }
  run(world, 2s, {&one}, &client);
  // without the open writer, each benefactor would run three at once
  CHECK(one.all<msg::DrainPieces>().size() == 1);
  REQUIRE(client.call(msg::DrainNow{kRootFile}));
  run(world, 500ms, {&one}, &client);
  CHECK(one.all<msg::DrainPieces>().size() == 3);
}

TEST_CASE("the drain yields until what is not drained is more than half of all memory") {
  World world("/drain");
  world.config.drain_yields = true;
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestBenefactor two(world, "b2", 2, kArena);
  TestClient client(world, "client");
  one.hold_back = two.hold_back = true;
  const auto writer = client.create("open", 4096);
  REQUIRE(writer);
  const auto at_once = [&] {
    run(world, 1s, {&one, &two}, &client);
    return std::pair(one.all<msg::DrainPieces>().size(), two.all<msg::DrainPieces>().size());
  };
  for (std::uint64_t i = 0; i < 16; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 7 + i));
  }
  CHECK(at_once() == std::pair(std::size_t{1}, std::size_t{1}));
  REQUIRE(client.write("more", 1, 1000));
  CHECK(at_once() == std::pair(std::size_t{3}, std::size_t{3}));
}

TEST_CASE("the drain yields to nobody who has not asked for space for 10 s") {
  World world("/drain");
  world.config.drain_yields = true;
  world.config.pool.stripe_width = 1;
  world.start();
  TestBenefactor one(world, "b1", 1, 1024 * limits::kMiB);
  TestClient client(world, "client");
  const auto writer = client.create("open", 4096);
  REQUIRE(writer);
  for (std::uint64_t i = 0; i < 200; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 7 + i));
  }
  run(world, 9s, {&one}, &client);
  CHECK(one.all<msg::DrainPieces>().size() < 100);
  run(world, 2s, {&one}, &client);
  CHECK(one.all<msg::DrainPieces>().size() == 200);
}

TEST_CASE("the share of a drain that yields is 8 MiB/s of each benefactor, or the rate of all") {
  struct Case {
    bool two_benefactors;
    std::uint64_t rate_of_all;  ///< in MiB/s; 0 means unlimited
    std::uint64_t share;
  };
  const auto [two_benefactors, rate_of_all, share] =
      GENERATE(Case{false, 0, 8}, Case{true, 0, 16}, Case{false, 20, 8}, Case{true, 20, 16},
               Case{true, 12, 12});
  CAPTURE(two_benefactors, rate_of_all);
  World world("/drain");
  world.config.drain_yields = true;
  world.config.drain_total_bytes_per_s = rate_of_all * limits::kMiB;
  world.config.pool.stripe_width = 1;
  world.start();
  constexpr std::uint64_t kLargeArena = 1024 * limits::kMiB;
  TestBenefactor one(world, "b1", 1, kLargeArena);
  std::optional<TestBenefactor> two;
  std::vector<TestBenefactor*> all{&one};
  if (two_benefactors) all.push_back(&two.emplace(world, "b2", 2, kLargeArena));
  TestClient client(world, "client");
  const auto writer = client.create("open", 4096);
  REQUIRE(writer);
  for (std::uint64_t i = 0; i < 200; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1 << 20, 7 + i));
  }
  const auto asked = [&] {
    std::size_t sum = 0;
    for (const TestBenefactor* each : all) sum += each->all<msg::DrainPieces>().size();
    return sum;
  };
  const std::size_t before = asked();
  run(world, 8s, all, &client);
  CHECK(asked() - before >= 8 * share - share);
  CHECK(asked() - before <= 8 * share + share);
}

TEST_CASE("files whose storage hangs stall no others, now and when they are tried again") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hold_back = true;  // until the test has chosen the files that hang
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto file = client.write("hung" + std::to_string(i), 1000, 7 + i);
    REQUIRE(file);
    one.hangs.insert(*file);
  }
  std::ranges::move(one.held, std::back_inserter(one.hung));
  one.held.clear();
  one.held_requests.clear();
  one.hold_back = false;
  for (std::uint64_t i = 0; i < 40; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1000, 100 + i));
  }
  run(world, 25s, {&one}, &client);  // the drain finds two hanging files at a time
  const auto pending = client.call(msg::StatPool{});
  REQUIRE(pending);
  CHECK(pending->drain_pending_files == 4);
  for (std::uint64_t i = 0; i < 20; ++i) {
    run(world, 7s, {&one}, &client);
    const std::string name = "later" + std::to_string(i);
    REQUIRE(client.write(name, 1000, 1000 + i));
    run(world, 1s, {&one}, &client);
    CHECK(client.lookup(name)->drain == DrainState::kDrained);
  }
  CHECK(one.hung.size() > 8);  // the drain has retried them
  one.hangs.clear();
  run(world, 100s, {&one}, &client);
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
}

TEST_CASE("files that hang when they get their names stall no others") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  one.hangs_at = [](const msg::Request& request) {
    const auto* finish = std::get_if<msg::DrainFinish>(&request);
    return finish != nullptr && finish->path.starts_with("hung");
  };
  constexpr std::uint64_t kHung = 40;  // more files than drain at once
  for (std::uint64_t i = 0; i < kHung; ++i) {
    REQUIRE(client.write("hung" + std::to_string(i), 1000, 100 + i));
  }
  run(world, 30s, {&one}, &client);
  REQUIRE(client.write("a", 1000, 7));
  run(world, 1s, {&one}, &client);
  CHECK(client.lookup("a")->drain == DrainState::kDrained);
  CHECK(client.call(msg::DrainNow{kRootFile})->pending_files == kHung);
  one.hangs_at = [](const msg::Request&) { return false; };
  run(world, 60s, {&one}, &client);
  CHECK(world.service->state().commits().undrained().empty());
}

TEST_CASE("slow storage gets no more requests at once") {
  World world("/drain");
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestClient client(world, "client");
  for (std::uint64_t i = 0; i < 12; ++i) {
    REQUIRE(client.write("f" + std::to_string(i), 1000, 7 + i));
  }
  one.hold_back = true;
  std::ptrdiff_t most = 0;
  for (const Duration takes : {6s, 6s, 20s, 20s, 20s, 20s}) {
    run(world, takes, {&one}, &client);
    const auto requests = std::exchange(one.held_requests, {});
    auto held = std::exchange(one.held, {});
    most = std::max(most, std::ranges::count_if(requests, [](const msg::Request& request) {
                      return std::holds_alternative<msg::DrainPieces>(request);
                    }));
    for (std::size_t i = 0; i < held.size(); ++i) one.answer(requests[i], held[i]);
  }
  CHECK(most == 3);
}
