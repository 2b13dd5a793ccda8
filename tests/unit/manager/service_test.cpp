#include "manager/service/service.h"

#include <algorithm>

#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

}  // namespace

TEST_CASE("who has not registered is refused") {
  World world;
  world.start();
  Actor stranger(world, "stranger");
  CHECK(stranger.call(msg::Lookup{{}, kRootFile, "a"}).error().code == Code::kRefused);
  CHECK(stranger.call(msg::StatPool{}).error().code == Code::kRefused);
  TestClient client(world, "client");
  CHECK(stranger.call(msg::Lookup{client.id, kRootFile, "a"}).error().code == Code::kRefused);
  TestClient other(world, "other");
  CHECK(other.call(msg::Lookup{client.id, kRootFile, "a"}).error().code == Code::kRefused);
}

TEST_CASE("a file is its client's alone until its commit, then everyone's, also after a restart") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  FileId file;
  {
    TestClient client(world, "client");
    TestClient other(world, "other");
    const auto opened = client.create("a", 4096);
    REQUIRE(opened);
    CHECK(opened->created);
    REQUIRE(opened->grants.size() == 1);
    CHECK(client.lookup("a").has_value());
    CHECK(other.lookup("a").error().code == Code::kNotFound);
    const auto reply =
        client.call(TestClient::commit_of(opened->session, opened->grants[0], 0, 1000, 7));
    REQUIRE(reply);
    CHECK(reply->attributes.size_bytes == 1000);
    CHECK(reply->attributes.version == 1);
    file = opened->attributes.id;
    const auto seen = other.lookup("a");
    REQUIRE(seen);
    CHECK(seen->id == file);
    const auto map = other.call(msg::GetMap{other.id, file});
    REQUIRE(map);
    REQUIRE(map->page.chunks.size() == 1);
    CHECK(map->page.chunks[0].copies[0].offset == opened->grants[0].offset);
  }
  world.restart();
  TestClient again(world, "again");
  const auto seen = again.lookup("a");
  REQUIRE(seen);
  CHECK(seen->id == file);
  CHECK(seen->size_bytes == 1000);
}

TEST_CASE("what was answered survives a power cut; what was not may be gone, the rest is whole") {
  World world;
  world.start();
  {
    TestClient client(world, "client");
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "kept", 0755}));
    world.journal.set_automatic(false);
    bool answered = false;
    // No answer before the command is durable.
    auto peer_call = [&] {
      const auto reply = client.call(msg::MakeDirectory{client.id, kRootFile, "cut", 0755});
      answered = reply.has_value();
    };
    peer_call();
    CHECK_FALSE(answered);
  }
  world.journal.drop_unsynced();
  world.stop();
  world.journal.set_automatic(true);
  world.start();
  TestClient client(world, "client2");
  CHECK(client.lookup("kept").has_value());
  CHECK(client.lookup("cut").error().code == Code::kNotFound);
}

TEST_CASE("a benefactor that asks again gets no number before the journal has it") {
  World world;
  world.start();
  world.journal.set_automatic(false);
  Actor actor(world, "b1");
  msg::RegisterBenefactor request;
  request.life_low = 1;
  request.addresses = {"mem:b1"};
  request.arena_bytes = kArena;
  int answered = 0;
  const auto ask = [&] {
    actor.disconnect();
    actor.connect();
    actor.peer().call(request, limits::kCallDeadline,
                      [&](const rpc::Answer& answer) { answered += answer ? 1 : 0; });
    world.turn();
  };
  ask();
  ask();
  ask();
  CHECK(answered == 0);
  CHECK(world.service->pool().benefactors().empty());
  world.journal.sync();
  world.turn();
  CHECK(answered == 1);
  CHECK(world.service->pool().benefactors().size() == 1);
  ask();
  CHECK(answered == 2);
}

TEST_CASE("M1: a commit names only what lies in the session's grants or what the pool has") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto opened = client.create("a", 8192);
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  const auto refused = [&](msg::Commit commit) {
    return client.call(std::move(commit)).error().code == Code::kInvalidArgument;
  };
  const SessionId session = opened->session;
  CHECK(refused(TestClient::commit_of(session, grant, grant.length, 1000, 7)));
  CHECK(refused(TestClient::commit_of(session, grant, 32, 1000, 7)));
  CHECK(refused(TestClient::commit_of(session, grant, grant.length - 1024, 1000, 7)));
  CHECK(refused(TestClient::commit_of(session, {{}, {99}, 0, 9999}, 0, 1000, 7)) == false);
  auto overlapping = TestClient::commit_of(session, grant, 0, 1000, 7);
  overlapping.written.chunks.push_back(overlapping.written.chunks[0]);
  overlapping.written.chunks[1].name.bytes[0] = std::byte{8};
  overlapping.written.slices.push_back({1000, 1000, 0, 1});
  CHECK(refused(overlapping));
  auto unused = TestClient::commit_of(session, grant, 0, 1000, 7);
  unused.written.chunks.push_back(unused.written.chunks[0]);
  CHECK(refused(unused));
  REQUIRE(client.call(TestClient::commit_of(session, grant, 0, 1000, 7)));
  CHECK(refused(TestClient::commit_of(session, grant, 64, 1000, 9, 1000)));
  REQUIRE(client.call(TestClient::commit_of(session, grant, 1088, 1000, 9, 1000)));
}

TEST_CASE("M1: a chunk without a name is committed again only as long as it was written") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto opened = client.create("a", 8192);
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  REQUIRE(client.call(TestClient::commit_of(opened->session, grant, 0, 1000, 0)));
  CHECK(client.call(TestClient::commit_of(opened->session, grant, 0, 2000, 0)).error().code ==
        Code::kInvalidArgument);
  CHECK(client.call(TestClient::commit_of(opened->session, grant, 0, 1000, 0, 5000)));
}

TEST_CASE("M1: a commit waits for a benefactor that does not answer, and fails without it") {
  World world;
  world.start();
  TestBenefactor lost(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto opened = client.create("a", 8192);
  REQUIRE(opened);
  TestBenefactor other(world, "b2", 2, kArena);
  lost.disconnect();
  std::optional<rpc::Answer> answer;
  client.peer().call_as(rpc::next_call_id(),
                        TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000, 7),
                        limits::kCallDeadline, [&](rpc::Answer got) { answer = std::move(got); });
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds && !answer; ++i) {
      world.pass(1s);
      other.beat();
      REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
    }
  };
  pass(4);
  REQUIRE_FALSE(answer);
  SECTION("it is back") {
    lost.connect();
    lost.register_now();
    pass(1);
    REQUIRE(answer);
    CHECK(answer->has_value());
    CHECK(client.lookup("a").has_value());
  }
  SECTION("it is gone") {
    pass(6);
    REQUIRE(answer);
    REQUIRE_FALSE(answer->has_value());
    CHECK(answer->error().error.code == Code::kDataLost);
    // Chunks on other benefactors do not wait.
    CHECK(client.write("b", 1000, 0).has_value());
  }
  SECTION("its client has given up meanwhile") {
    REQUIRE(client.call(msg::CloseSession{opened->session, true, 1000, false}));
    pass(1);
    REQUIRE(answer);
    CHECK(answer->error().error.code == Code::kFenced);
  }
}

TEST_CASE("M1: with proof=checksum a commit names what the benefactors have found") {
  World world;
  world.config.policy = parse_policy("proof=checksum").value();
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto opened = client.create("a", 8192);
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  const auto commit = TestClient::commit_of(opened->session, grant, 0, 1000, 7);
  SECTION("it is there") {
    REQUIRE(client.call(commit));
    REQUIRE(benefactor.all<msg::CheckExtents>().size() == 1);
    const auto checked = benefactor.all<msg::CheckExtents>()[0].extents;
    REQUIRE(checked.size() == 1);
    CHECK(checked[0].offset == grant.offset);
    CHECK(checked[0].length == 1000);
    // Later chunks are proven, too.
    benefactor.wrong = {grant.offset + 1088};
    CHECK(client.call(TestClient::commit_of(opened->session, grant, 1088, 1000, 9, 1000))
              .error()
              .code == Code::kDataLost);
    CHECK(client.lookup("a")->size_bytes == 1000);
  }
  SECTION("it is not") {
    benefactor.wrong = {grant.offset};
    CHECK(client.call(commit).error().code == Code::kDataLost);
    CHECK(client.lookup("a")->version == 0);
    benefactor.wrong.clear();
    CHECK(client.call(commit));
  }
  SECTION("the benefactor does not say") {
    benefactor.hold_back = true;
    CHECK(client.call(commit).error().code == Code::kFenced);  // the client is silent, too
    client.register_now();
    CHECK(client.lookup("a").error().code == Code::kNotFound);
  }
}

TEST_CASE("a grant has room for the client's chunk, whatever the pool's is") {
  World world;
  world.config.pool.chunk_bytes = limits::kChunkBytesMin;
  world.start();
  const std::uint32_t half = extent_bytes(limits::kChunkBytesMin);
  TestBenefactor benefactor(world, "b1", 1, 4 * half);
  TestClient client(world, "client");
  std::vector<SessionId> sessions;
  for (int i = 0; i < 4; ++i) {
    const auto opened = client.create("f" + std::to_string(i), half);
    REQUIRE(opened);
    REQUIRE(opened->grants.size() == 1);
    sessions.push_back(opened->session);
  }
  // The first hole is too small for a writer of chunks of twice that size.
  REQUIRE(client.call(msg::CloseSession{sessions[0], false, 0, false}));
  REQUIRE(client.call(msg::CloseSession{sessions[2], false, 0, false}));
  REQUIRE(client.call(msg::CloseSession{sessions[3], false, 0, false}));
  const auto opened = client.create("large");
  REQUIRE(opened);
  const msg::Place place{opened->session, {}, 2 * half, {}, {}, 2 * half};
  const auto placed = client.call(place);
  REQUIRE(placed);
  REQUIRE(placed->grants.size() == 1);
  CHECK(placed->grants[0].length >= 2 * half);
}

TEST_CASE("who has given up a new file does not see what others still write there") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient one(world, "c1"), two(world, "c2");
  const auto first = one.create("a");
  const auto second = two.create("a");
  REQUIRE(first);
  REQUIRE(second);
  CHECK(one.lookup("a"));
  REQUIRE(one.call(msg::CloseSession{first->session, true, 0, false}));
  CHECK(one.lookup("a").error().code == Code::kNotFound);
  CHECK(two.lookup("a"));
}

TEST_CASE("the same chunk written by two clients is kept once and the second extent goes back") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.write("a", 1000, 7));
  const std::uint64_t free = world.service->pool().space().free_bytes(benefactor.id);
  REQUIRE(client.write("b", 1000, 7));
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == free);
  CHECK(world.service->state().chunks().chunk_count() == 1);
}

TEST_CASE("all space comes back when files are removed and sessions end") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.write("a", 1000, 0));
  REQUIRE(client.write("b", 100000, 0));
  const auto open = client.create("c", 1 << 20);
  REQUIRE(open);
  CHECK(world.service->pool().space().free_bytes(benefactor.id) < kArena - (1 << 20));
  REQUIRE(client.call(msg::CloseSession{open->session}));
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a"}));
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "b"}));
  world.turn();
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena);
}

TEST_CASE("M4: a chunk answered as existing stays until the session ends") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.write("a", 1000, 7));
  const auto open = client.create("b");
  REQUIRE(open);
  ChunkName name;
  name.bytes[0] = std::byte{7};
  const auto placed = client.call(msg::Place{open->session, {{name, 1000}}, 0, {}, {}});
  REQUIRE(placed);
  REQUIRE(placed->existing.size() == 1);
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a"}));
  world.turn();
  CHECK(world.service->pool().space().free_bytes(benefactor.id) < kArena);
  msg::Commit commit;
  commit.session = open->session;
  commit.written.chunks = {placed->existing[0].chunk};
  commit.written.slices = {{0, 1000, 0, 0}};
  commit.end = true;
  REQUIRE(client.call(commit));
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "b"}));
  world.turn();
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena);
}

TEST_CASE("M3: a client that was silent has its space quarantined until it is fenced") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  benefactor.fences = false;
  TestClient client(world, "client");
  const auto open = client.create("a", 1 << 20);
  REQUIRE(open);
  for (int i = 0; i < 14; ++i) {
    world.pass(500ms);
    benefactor.beat();
  }
  CHECK(client.call(msg::StatPool{}).error().code == Code::kFenced);
  CHECK_FALSE(benefactor.all<msg::FenceClient>().empty());
  CHECK(benefactor.all<msg::FenceClient>().back().client == client.id);
  CHECK(world.service->pool().space().free_bytes(benefactor.id) < kArena);
  REQUIRE_FALSE(client.notices.empty());
  CHECK(client.notices.back().fenced == std::vector<SessionId>{open->session});
  benefactor.fences = true;
  world.pass(2s);
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena);
}

TEST_CASE("M3: an abandoned extent is not granted before its client is fenced") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 1 << 20);
  REQUIRE(open);
  const Grant grant = open->grants.at(0);
  auto commit = TestClient::commit_of(open->session, grant, 0, 1000, 7);
  commit.abandoned = {{grant.benefactor, grant.offset + 4096}};
  commit.end = true;
  REQUIRE(client.call(commit));
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena - grant.length);
  for (const auto& fence : benefactor.all<msg::FenceClient>()) CHECK(fence.client != client.id);
  REQUIRE(client.call(msg::GoodbyeClient{client.id}));
  world.turn();
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena - extent_bytes(1000));
}

TEST_CASE(
    "after a restart nothing is granted on an arena before clients of earlier epochs are fenced") {
  World world;
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
  }
  world.restart();
  Actor early(world, "early");
  TestClient client(world, "client2");
  CHECK(client.write("x", 1000, 8).error().code == Code::kNoSpace);
  TestBenefactor again(world, "b1", 1, kArena);
  CHECK(again.id == BenefactorId{1});
  REQUIRE(again.all<msg::FenceClient>().size() == 1);
  CHECK(again.all<msg::FenceClient>()[0].and_older);
  CHECK(world.service->pool().space().free_bytes(again.id) == kArena - extent_bytes(1000));
  CHECK(client.write("b", 1000, 8).has_value());
  TestBenefactor other(world, "b2", 2, kArena);
  CHECK(other.id == BenefactorId{2});
}

TEST_CASE("a restarted manager tells of benefactors that it expects back, for two leases") {
  World world;
  world.start();
  { TestBenefactor benefactor(world, "b1", 1, kArena); }
  world.restart();
  TestClient client(world, "client");
  const auto listed = [&] {
    const auto reply = client.call(msg::ListBenefactors{});
    REQUIRE(reply);
    return reply->benefactors;
  };
  REQUIRE(listed().size() == 1);
  CHECK(listed()[0].state == msg::BenefactorState::kSilent);
  CHECK(listed()[0].addresses.empty());
  client.notices.clear();
  for (Duration passed{}; passed < 2 * limits::kLease + 1s; passed += 1s) {
    world.pass(1s);
    REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
  }
  CHECK(listed().empty());
  CHECK(std::ranges::any_of(client.notices, &msg::Invalidate::benefactors_changed));
}

TEST_CASE("the time in which a manager was stopped is nobody's silence") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 4096);
  REQUIRE(open);
  const auto state = [&] {
    const auto reply = client.call(msg::ListBenefactors{});
    return reply ? reply->benefactors.at(0).state : msg::BenefactorState::kGone;
  };
  world.clock.advance(10 * limits::kLease);
  world.turn();
  CHECK(state() == msg::BenefactorState::kAlive);
  CHECK(client.call(TestClient::commit_of(open->session, open->grants[0], 0, 1000, 7)).has_value());
  // From then on silence counts normally, even if a client was heard just before the first tick.
  world.pass(limits::kLease + 1s);
  CHECK(client.call(msg::StatPool{}).error().code == Code::kFenced);
  client.register_now();
  CHECK(state() == msg::BenefactorState::kSilent);
}

TEST_CASE("a registration that had to wait is not done over a link that came after its own") {
  World world;
  world.start();
  { TestBenefactor benefactor(world, "b1", 1, kArena); }
  world.journal.set_automatic(false);
  world.restart();
  {
    Actor gone(world, "b1");
    msg::RegisterBenefactor request;
    request.life_low = 1;
    request.addresses = {"mem:b1"};
    request.arena_bytes = kArena;
    gone.peer().call(std::move(request), limits::kCallDeadline, [](const rpc::Answer&) {});
    world.turn();
  }
  world.turn();
  // The memory of its connection has been reused.
  std::deque<Actor> others;
  for (int i = 0; i < 8; ++i) others.emplace_back(world, "other" + std::to_string(i));
  world.journal.set_automatic(true);
  world.journal.sync();
  world.turn();
  TestClient client(world, "client");
  const auto reply = client.call(msg::ListBenefactors{});
  REQUIRE(reply);
  REQUIRE(reply->benefactors.size() == 1);
  CHECK(reply->benefactors[0].state == msg::BenefactorState::kSilent);
}

TEST_CASE("a lost link costs a client nothing while its lease lasts") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 4096);
  REQUIRE(open);
  const ClientId before = client.id;
  client.disconnect();
  client.connect();
  client.register_now();
  CHECK(client.id == before);
  CHECK(client.call(TestClient::commit_of(open->session, open->grants[0], 0, 1000, 7)).has_value());
}

TEST_CASE("a repeated request is answered and not done again") {
  World world;
  world.start();
  TestClient client(world, "client");
  const msg::MakeDirectory request{client.id, kRootFile, "d", 0755};
  const std::uint64_t id = rpc::next_call_id();
  const auto first = client.call(request, id);
  REQUIRE(first);
  const auto second = client.call(request, id);
  REQUIRE(second);
  CHECK(*first == *second);
  CHECK(client.call(request).error().code == Code::kExists);
}

TEST_CASE("a repeat that waits is told when its client has ended") {
  World world;
  world.start();
  TestClient client(world, "client");
  const msg::MakeDirectory request{client.id, kRootFile, "d", 0755};
  const std::uint64_t id = rpc::next_call_id();
  world.journal.set_automatic(false);
  client.peer().call_as(id, request, limits::kCallDeadline, [](const rpc::Answer&) {});
  world.turn();
  client.disconnect();
  client.connect();
  client.register_now();
  std::optional<rpc::Answer> answer;
  client.peer().call_as(id, request, 4 * limits::kLease,
                        [&](rpc::Answer got) { answer = std::move(got); });
  world.pass(2 * limits::kLease);
  REQUIRE(answer);
  REQUIRE_FALSE(answer->has_value());
  CHECK(answer->error().error.code == Code::kFenced);
}

namespace {

/// Repeats a request under its old number, as a client without an answer does.
struct Repeats {
  World& world;
  TestClient client{world, "client"};
  ClientId before = client.id;

  void restart() {
    world.restart();
    client.connect();
    client.register_now();
    REQUIRE(client.id != before);
  }
};

}  // namespace

TEST_CASE("a change that a manager has made is not made again by the next one") {
  World world;
  world.start();
  Repeats repeats{world};
  TestClient& client = repeats.client;
  const msg::MakeDirectory make{client.id, kRootFile, "d", 0755};
  const msg::MakeSymlink link{client.id, kRootFile, "l", "d"};
  const auto made = client.call(make, 1);
  const auto linked = client.call(link, 2);
  REQUIRE(made);
  REQUIRE(linked);
  const FileId made_id = made->attributes.id;
  msg::SetAttributes change;
  change.client = client.id;
  change.file = made_id;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  change.mode = 0700;
  msg::SetXattr xattr{client.id, made_id, "user.a", "b", msg::XattrMode::kCreate, false};
  const msg::Rename rename{client.id, kRootFile, "l", kRootFile, "m", true, false};
  const msg::Remove remove{client.id, kRootFile, "x", true};
  const msg::SetPolicy policy{client.id, made_id, {{{PolicyKey::kKeep, 2}}}};
  REQUIRE(client.call(change, 3));
  REQUIRE(client.call(xattr, 4));
  REQUIRE(client.call(rename, 5));
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "x", 0755}));
  REQUIRE(client.call(remove, 6));
  REQUIRE(client.call(policy, 7));
  const bool from_snapshot = GENERATE(false, true);
  if (from_snapshot) {
    world.journal.set_snapshot_every(1);
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "more", 0755}));
    world.pass(1s);
    REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "and more", 0755}));
    REQUIRE(world.journal.after_snapshot() == 1);
  }
  repeats.restart();

  // Other clients have made changes meanwhile.
  TestClient other(world, "other");
  REQUIRE(other.call(msg::MakeDirectory{other.id, kRootFile, "x", 0755}));
  REQUIRE(other.call(msg::MakeSymlink{other.id, kRootFile, "l", "new"}));
  change.mode = 0600;
  change.client = other.id;
  REQUIRE(other.call(change));
  change.mode = 0700;
  change.client = repeats.before;

  CHECK(client.call(make, 1).value().attributes.id == made_id);
  CHECK(client.call(link, 2).value().attributes.type == FileType::kSymlink);
  CHECK(client.call(change, 3).value().attributes.mode == 0600);
  CHECK(client.call(xattr, 4));
  CHECK(client.call(rename, 5));
  CHECK(client.call(remove, 6));
  CHECK(client.call(policy, 7));
  CHECK(client.lookup("x"));
  CHECK(client.lookup("l"));
  CHECK(client.lookup("m"));
  // The changed name is gone, and another file has it.
  REQUIRE(other.call(msg::Remove{other.id, kRootFile, "d", true}));
  REQUIRE(other.call(msg::MakeSymlink{other.id, kRootFile, "d", "x"}));
  world.stop();
  world.start();
  client.connect();
  client.register_now();
  CHECK(client.call(change, 3).error().code == Code::kStale);
  CHECK(client.call(make, 1).error().code == Code::kStale);
}

TEST_CASE("a change that a manager has not made is made by the next one, once") {
  World world;
  world.start();
  Repeats repeats{world};
  TestClient& client = repeats.client;
  const msg::MakeDirectory make{client.id, kRootFile, "d", 0755};
  world.journal.set_automatic(false);
  bool answered = false;
  client.peer().call_as(1, make, limits::kCallDeadline,
                        [&](const rpc::Answer& answer) { answered = answer.has_value(); });
  world.turn();
  CHECK_FALSE(answered);
  world.stop();
  world.journal.drop_unsynced();
  world.journal.set_automatic(true);
  world.start();
  client.connect();
  client.register_now();
  CHECK(client.lookup("d").error().code == Code::kNotFound);
  const auto made = client.call(make, 1);
  REQUIRE(made);
  CHECK(client.call(make, 1).value().attributes.id == made->attributes.id);
  repeats.restart();
  CHECK(client.call(make, 1).value().attributes.id == made->attributes.id);
}

TEST_CASE("a change that a manager has made and not kept yet is not answered before that") {
  World world;
  world.start();
  Repeats repeats{world};
  TestClient& client = repeats.client;
  const msg::MakeDirectory make{client.id, kRootFile, "d", 0755};
  repeats.restart();
  world.journal.set_automatic(false);
  int answered = 0;
  const auto ask = [&] {
    client.peer().call_as(1, make, limits::kManagerDeadline,
                          [&](const rpc::Answer& answer) { answered += answer ? 1 : 0; });
    world.turn();
  };
  ask();
  // The answers of a client that has ended are dropped.
  const ClientId second = client.id;
  client.disconnect();
  world.pass(limits::kLease + 1s);
  client.connect();
  client.register_now();
  REQUIRE(client.id != second);
  ask();
  CHECK(answered == 0);
  world.journal.sync();
  world.turn();
  CHECK(answered == 1);
}

TEST_CASE("a change of which a manager cannot know any more whether it was made is not made") {
  World world;
  world.start();
  Repeats repeats{world};
  TestClient& client = repeats.client;
  const auto make = [&](std::uint64_t call) {
    return client.call(
        msg::MakeDirectory{repeats.before, kRootFile, "d" + std::to_string(call), 0755}, call);
  };
  for (std::uint64_t call = 2; call < 3 + CompletionRecords::kCallsMax; ++call) REQUIRE(make(call));
  repeats.restart();
  CHECK(make(1).error().code == Code::kFenced);
  CHECK(make(2).error().code == Code::kFenced);
  CHECK(make(3).has_value());
}

TEST_CASE("what a client asked for before its lease ran out is not done when it is back") {
  World world;
  world.start();
  TestClient client(world, "client");
  const ClientId before = client.id;
  const msg::MakeDirectory make{before, kRootFile, "d", 0755};
  client.disconnect();
  world.pass(2 * limits::kLease);
  client.connect();
  client.register_now();
  REQUIRE(client.id != before);
  CHECK(client.call(make, 1).error().code == Code::kFenced);
}

TEST_CASE("a map in parts commits as one, a repeated part is known") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 8192);
  REQUIRE(open);
  auto part = TestClient::commit_of(open->session, open->grants[0], 0, 1000, 7);
  part.last = false;
  REQUIRE(client.call(part));
  REQUIRE(client.call(part));
  CHECK(world.service->state().file(open->attributes.id)->newest.version == 0);
  auto last = TestClient::commit_of(open->session, open->grants[0], 1088, 1000, 8, 1000);
  last.part = 1;
  const auto reply = client.call(last);
  REQUIRE(reply);
  CHECK(reply->attributes.size_bytes == 2000);
  CHECK(reply->attributes.version == 1);
}

TEST_CASE("N-to-1: two clients that write disjoint parts of one file both find them in the end") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient one(world, "one");
  TestClient two(world, "two");
  const auto first = one.create("a", 4096);
  const auto second = two.create("a", 4096);
  REQUIRE((first && second));
  CHECK(first->attributes.id == second->attributes.id);
  CHECK_FALSE(second->created);
  REQUIRE(one.call(TestClient::commit_of(first->session, first->grants[0], 0, 1000, 7)));
  const auto reply =
      two.call(TestClient::commit_of(second->session, second->grants[0], 0, 1000, 8, 1000));
  REQUIRE(reply);
  CHECK(reply->attributes.size_bytes == 2000);
  CHECK(reply->attributes.version == 2);
  CHECK(reply->conflicts == 0);
  const auto over =
      one.call(TestClient::commit_of(first->session, first->grants[0], 1088, 500, 9, 1200));
  REQUIRE(over);
  CHECK(over->conflicts == 1);
  CHECK(world.service->services().writing.totals.conflicts() == 1);
}

TEST_CASE("an unlinked open file can be written, committed and read by its session") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 4096);
  REQUIRE(open);
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a"}));
  CHECK(client.lookup("a").error().code == Code::kNotFound);
  REQUIRE(client.call(TestClient::commit_of(open->session, open->grants[0], 0, 1000, 7)));
  const auto map = client.call(msg::GetMap{client.id, open->attributes.id});
  REQUIRE(map);
  CHECK(map->slice_count == 1);
  REQUIRE(client.call(msg::Unpin{client.id, open->attributes.id, 1}));
  REQUIRE(client.call(msg::CloseSession{open->session}));
  world.turn();
  CHECK(world.service->pool().space().free_bytes(benefactor.id) == kArena);
  world.restart();
}

TEST_CASE("a registration that comes twice on one link makes one client") {
  World world;
  world.start();
  TestClient client(world, "client");
  const ClientId first = client.id;
  client.id = {};
  client.register_now();
  CHECK(client.id == first);
  client.id = ClientId{1};  // a client number of an earlier manager
  client.register_now();
  CHECK(client.id == first);
}

TEST_CASE("the journal knows of copies that the chunks of a file get from one without a name") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena);
  TestBenefactor two(world, "b2", 2, kArena);
  TestClient client(world, "client");
  const auto file = client.write("a", 1000, 7);
  REQUIRE(file);
  const auto copies = [&] {
    const State& state = world.service->state();
    return state.chunks().get(state.file(*file)->newest.slices.at(0).chunk).copies;
  };
  const Extent first = copies().at(0);
  const bool on_one = first.benefactor == one.id;
  (on_one ? one : two).disconnect();
  const auto open = client.create("b", 4096);
  REQUIRE(open);
  REQUIRE(open->grants.at(0).benefactor == (on_one ? two : one).id);
  REQUIRE(client.call(msg::Remove{client.id, kRootFile, "b"}));
  REQUIRE(client.call(TestClient::commit_of(open->session, open->grants[0], 0, 1000, 7)));
  auto before = copies();
  REQUIRE(before.size() == 2);
  world.restart();
  auto after = copies();
  std::ranges::sort(before);
  std::ranges::sort(after);
  CHECK(before == after);
}

TEST_CASE("the next image of a series is told the newest one before it") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.write("heat.N3.T9", 1000, 1));
  const auto nine = client.write("heat.N3.T10", 1000, 2);
  REQUIRE(client.write("heat.N30.T11", 1000, 3));
  REQUIRE(client.write("heat.N3.T40", 1000, 4));
  const auto next = client.create("heat.N3.T12");
  REQUIRE((nine && next));
  CHECK(next->similar_file == *nine);
  CHECK(next->similar_version == 1);
}

TEST_CASE("watchers hear of changes by others, not of their own") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient one(world, "one");
  TestClient two(world, "two");
  REQUIRE(one.call(msg::ReadDirectory{one.id, kRootFile, {}}));
  REQUIRE(two.call(msg::ReadDirectory{two.id, kRootFile, {}}));
  world.turn();
  one.notices.clear();
  two.notices.clear();
  REQUIRE(one.write("a", 1000, 1));
  world.turn();
  CHECK(one.notices.empty());
  REQUIRE_FALSE(two.notices.empty());
  CHECK(two.notices[0].entries.at(0) == msg::Invalidate::Entry{kRootFile, "a"});
}

TEST_CASE("grants go round robin over the benefactors with most space and avoid those named") {
  World world;
  world.config.pool.stripe_width = 2;
  world.start();
  TestBenefactor small(world, "b1", 1, 16 * limits::kMiB);
  TestBenefactor big(world, "b2", 2, kArena);
  TestBenefactor bigger(world, "b3", 3, 2 * kArena);
  TestClient client(world, "client");
  const auto open = client.create("a", 8 * limits::kMiB);
  REQUIRE(open);
  std::vector<std::uint64_t> from;
  for (const Grant& grant : open->grants) from.push_back(grant.benefactor.value);
  std::sort(from.begin(), from.end());
  CHECK(from == std::vector<std::uint64_t>{2, 3});
  const auto placed = client.call(msg::Place{open->session, {}, 4096, {big.id, bigger.id}, {}});
  REQUIRE(placed);
  CHECK(placed->grants.at(0).benefactor == small.id);
}

TEST_CASE("a directory moves only where all paths below it can be drained") {
  World world("/drain");
  world.start();
  TestClient client(world, "client");
  const auto make = [&](FileId parent, const std::string& name) {
    const auto made = client.call(msg::MakeDirectory{client.id, parent, name, 0755});
    REQUIRE(made);
    return made->attributes.id;
  };
  const auto rename = [&](const std::string& from, const std::string& to, bool exchange = false) {
    msg::Rename request;
    request.client = client.id;
    request.from_parent = request.to_parent = kRootFile;
    request.from_name = from;
    request.to_name = to;
    request.exchange = exchange;
    const auto done = client.call(request);
    return done ? Code{} : done.error().code;
  };
  FileId folder = make(kRootFile, "d");
  std::size_t bytes = std::string_view("/drain/d").size();
  for (; bytes + 256 < limits::kPathBytesMax; bytes += 256) {
    folder = make(folder, std::string(255, 'x'));
  }
  msg::OpenSession open;
  open.client = client.id;
  open.parent = folder;
  open.name = std::string(limits::kPathBytesMax - bytes - 1, 'f');
  open.mode = 0644;
  const auto opened = client.call(open);  // not committed yet
  REQUIRE(opened);
  make(kRootFile, "other");
  CHECK(rename("d", "e") == Code{});
  CHECK(rename("e", "longer") == Code::kNameTooLong);
  CHECK(rename("e", "other", true) == Code::kNameTooLong);
  CHECK(rename("other", "e", true) == Code::kNameTooLong);
  CHECK(rename("other", "much-longer") == Code{});
  REQUIRE(client.call(msg::Remove{client.id, folder, open.name, false}));
  CHECK(rename("e", "longer") == Code{});
}

TEST_CASE("a full pool answers no space in bounded time") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, 4 * limits::kMiB);
  TestClient client(world, "client");
  int written = 0;
  while (client.write("f" + std::to_string(written), 1 << 20, 0)) ++written;
  CHECK(written == 3);
  CHECK(client.write("g", 1 << 20, 0).error().code == Code::kNoSpace);
  CHECK(client.write("small", 1000, 0).has_value());
}

TEST_CASE("a folder's policy is told with each session below it, also after a restart") {
  World world;
  world.config.policy = {{{PolicyKey::kCopies, 1}}};
  world.start();
  const Policy fixed{{{PolicyKey::kChunking, static_cast<std::uint64_t>(Chunking::kFixed)}}};
  FileId folder;
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    const auto made = client.call(msg::MakeDirectory{client.id, kRootFile, "app", 0755});
    REQUIRE(made);
    folder = made->attributes.id;
    CHECK(client.create("outside", 0)->policy == world.config.policy);
    REQUIRE(client.call(msg::SetPolicy{client.id, folder, fixed}));
    const auto asked = client.call(msg::GetPolicy{folder});
    REQUIRE(asked);
    CHECK(asked->own == fixed);
    CHECK(asked->effective.settings.size() == 2);
    // An unknown setting is refused, not stored.
    const Policy many{{{PolicyKey::kChunking, static_cast<std::uint64_t>(Chunking::kFixed)},
                       {static_cast<PolicyKey>(999), 1}}};
    CHECK(client.call(msg::SetPolicy{client.id, folder, many}).error().code == Code::kUnsupported);
    CHECK(client.call(msg::GetPolicy{folder})->own == fixed);
    CHECK(client.call(msg::GetPolicy{{99}}).error().code == Code::kStale);
  }
  world.restart();
  TestBenefactor benefactor(world, "b2", 2, kArena);
  TestClient client(world, "again");
  msg::OpenSession open;
  open.client = client.id;
  open.parent = folder;
  open.name = "inside";
  const auto opened = client.call(open);
  REQUIRE(opened);
  CHECK(opened->policy.chunking() == Chunking::kFixed);
  CHECK(opened->policy.find(PolicyKey::kCopies) == 1);
}

TEST_CASE(
    "a benefactor that no client could be told of is refused, and one that comes back is not") {
  World world;
  world.start();
  std::vector<std::unique_ptr<TestBenefactor>> all;
  for (std::uint64_t life = 1; life <= 500; ++life) {
    all.push_back(
        std::make_unique<TestBenefactor>(world, "b" + std::to_string(life), life, limits::kMiB));
  }
  Actor late(world, "late");
  msg::RegisterBenefactor request = all.back()->request();
  request.life_low = 501;
  request.newest_epoch = {};
  const auto refused = late.call(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::kRefused);
  all.front()->disconnect();
  CHECK(late.call(request));
  all[1]->disconnect();
  all[1]->connect();
  all[1]->register_now();
}
