// Tests sessions that resume with a manager of a later epoch.
#include <algorithm>

#include "manager/service/service.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::uint32_t kLength = 1000;
constexpr std::uint64_t kFirst = 0;
constexpr std::uint64_t kSecond = extent_bytes(kLength);

/// A pool whose manager restarts while a session has a grant.
struct Interrupted {
  Interrupted() {
    world.start();
    benefactor.emplace(world, "b1", 1, kArena);
    client.emplace(world, "client");
    const auto opened = client->create("a", 8192);
    REQUIRE(opened);
    session = opened->session;
    file = opened->attributes.id;
    grant = opened->grants.at(0);
  }
  void restart() {
    world.restart();
    benefactor->connect();
    benefactor->register_now();
    client->connect();
    client->id = {};
    client->register_now();
  }
  msg::Commit commit(std::uint64_t at = kFirst, std::uint64_t name = 7) const {
    return TestClient::commit_of(session, grant, at, kLength, name);
  }
  /// The request of a session that has stored chunks at these places of its grant.
  msg::ResumeSession resume(std::vector<std::uint64_t> places) const {
    msg::ResumeSession request;
    request.client = client->id;
    request.session = session;
    request.file = file;
    request.parent = kRootFile;
    request.name = "a";
    request.mode = 0644;
    for (const std::uint64_t at : places) {
      request.stored.push_back(commit(at, 7 + at).written.chunks.at(0));
    }
    return request;
  }
  Code refused(msg::ResumeSession request) {
    const auto reply = client->call(std::move(request));
    REQUIRE_FALSE(reply);
    return reply.error().code;
  }
  void pass(Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      world.pass(1s);
      if (benefactor->peer_lives()) benefactor->beat();
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    }
  }

  World world;
  std::optional<TestBenefactor> benefactor;
  std::optional<TestClient> client;
  SessionId session;
  FileId file;
  Grant grant;
};

}  // namespace

TEST_CASE("a session goes on after a restart with what it has stored") {
  Interrupted pool;
  pool.restart();
  const auto resumed = pool.client->call(pool.resume({kFirst, kSecond}));
  REQUIRE(resumed);
  CHECK_FALSE(resumed->committed);
  CHECK(resumed->attributes.id == pool.file);
  CHECK(resumed->attributes.version == 0);
  const auto checks = pool.benefactor->all<msg::CheckExtents>();
  REQUIRE(checks.size() == 1);
  CHECK(checks[0].extents.size() == 2);
  // The manager checks the chunks only after it has fenced late writes.
  const auto& served = pool.benefactor->served;
  const auto first = [&](auto of) {
    return std::ranges::find_if(
        served, [&](const auto& each) { return std::holds_alternative<decltype(of)>(each); });
  };
  CHECK(first(msg::FenceClient{}) < first(msg::CheckExtents{}));
  // Only the creator sees the file before its first commit.
  TestClient other(pool.world, "other");
  CHECK(other.lookup("a").error().code == Code::kNotFound);
  const auto committed = pool.client->call(pool.commit());
  REQUIRE(committed);
  CHECK(committed->attributes.version == 1);
  CHECK(other.lookup("a")->id == pool.file);
  // Closing the session frees its stored but uncommitted chunks.
  REQUIRE(pool.client->call(msg::CloseSession{pool.session, false, 0, false}));
  CHECK(pool.world.service->pool().space().free_bytes(pool.benefactor->id) ==
        kArena - extent_bytes(kLength));
}

TEST_CASE("what was stored before a restart is granted to nobody while its client may come") {
  Interrupted pool;
  pool.restart();
  pool.world.pass(1s);
  SECTION("at once") {}
  SECTION("the new manager is stopped meanwhile, for longer than it waits") {
    pool.world.clock.advance(10 * limits::kLease);
    pool.world.pass(1s);
  }
  auto& space = pool.world.service->pool().space();
  CHECK_FALSE(space.take(pool.benefactor->id, 64, 64));
  REQUIRE(pool.client->call(pool.resume({kFirst, kSecond})));
  pool.pass(3s);
  CHECK(space.free_bytes(pool.benefactor->id) == kArena - 2 * extent_bytes(kLength));
  while (const auto range = space.take(pool.benefactor->id, kArena, 64)) {
    const std::uint64_t end = range->offset + range->length;
    CHECK((end <= pool.grant.offset || range->offset >= pool.grant.offset + 2 * kSecond));
  }
}

TEST_CASE("a session ends when what it has stored is not what it was, or is gone") {
  Interrupted pool;
  SECTION("one chunk is wrong") {
    pool.benefactor->wrong = {pool.grant.offset + kSecond};
    pool.restart();
    CHECK(pool.refused(pool.resume({kFirst, kSecond})) == Code::kDataLost);
  }
  SECTION("its benefactor does not come back") {
    pool.restart();
    pool.benefactor->disconnect();
    std::optional<rpc::Answer> answer;
    pool.client->peer().call_as(rpc::next_call_id(), pool.resume({kFirst}),
                                limits::kOperationDeadline,
                                [&](rpc::Answer got) { answer = std::move(got); });
    for (int i = 0; i < 12 && !answer; ++i) {
      pool.world.pass(1s);
      REQUIRE(pool.client->call(msg::ClientHeartbeat{pool.client->id}));
    }
    REQUIRE(answer);
    CHECK(answer->error().error.code == Code::kDataLost);
  }
  CHECK(pool.client->call(pool.commit()).error().code == Code::kFenced);
  CHECK(pool.world.service->pool().space().free_bytes(pool.benefactor->id) == kArena);
  CHECK(pool.client->lookup("a").error().code == Code::kNotFound);
}

TEST_CASE("a benefactor that goes after its part was looked at is missed, too") {
  Interrupted pool;
  TestBenefactor second(pool.world, "b2", 2, kArena);
  const auto placed =
      pool.client->call(msg::Place{pool.session, {}, 8192, {pool.benefactor->id}, {}});
  REQUIRE(placed);
  const Grant other = placed->grants.at(0);
  REQUIRE(other.benefactor == second.id);
  pool.restart();
  second.connect();
  second.register_now();
  second.hold_back = true;
  msg::ResumeSession request = pool.resume({kFirst});
  request.stored.push_back(
      TestClient::commit_of(pool.session, other, kFirst, kLength, 8).written.chunks.at(0));
  std::optional<rpc::Answer> answer;
  pool.client->peer().call_as(rpc::next_call_id(), request, limits::kOperationDeadline,
                              [&](rpc::Answer got) { answer = std::move(got); });
  pool.world.pass(1s);
  REQUIRE(pool.benefactor->all<msg::CheckExtents>().size() == 1);
  REQUIRE(second.held_requests.size() == 1);
  pool.benefactor->disconnect();
  for (int i = 0; i < 12; ++i) {
    pool.world.pass(1s);
    second.beat();
    REQUIRE(pool.client->call(msg::ClientHeartbeat{pool.client->id}));
  }
  REQUIRE(pool.world.service->pool().is_presumed_lost(pool.benefactor->id));
  second.let_go();
  pool.world.pass(1s);
  REQUIRE(answer);
  REQUIRE_FALSE(*answer);
  CHECK(answer->error().error.code == Code::kDataLost);
}

TEST_CASE("two sessions cannot go on with the same extent") {
  Interrupted pool;
  const auto second = pool.client->create("b");
  REQUIRE(second);
  pool.restart();
  REQUIRE(pool.client->call(pool.resume({kFirst})));
  auto request = pool.resume({kFirst, kSecond});
  request.session = second->session;
  request.file = second->attributes.id;
  request.name = "b";
  CHECK(pool.refused(request) == Code::kStale);
  REQUIRE(pool.client->call(pool.commit()));
}

TEST_CASE("a commit that was done and not answered is found") {
  Interrupted pool;
  REQUIRE(pool.client->call(pool.commit()));
  pool.restart();
  auto request = pool.resume({kFirst});
  request.stored = {pool.commit().written.chunks.at(0)};
  SECTION("all of it") {
    const auto resumed = pool.client->call(request);
    REQUIRE(resumed);
    CHECK(resumed->committed);
    CHECK(resumed->attributes.version == 1);
    auto more = pool.commit(kSecond, 9);
    more.written.slices.at(0).file_offset = kLength;
    // the session has no grant
    CHECK(pool.client->call(more).error().code == Code::kInvalidArgument);
    REQUIRE(pool.client->call(msg::CloseSession{pool.session, false, 0, false}));
  }
  SECTION("only a part of it") {
    request.stored.push_back(pool.commit(kSecond, 9).written.chunks.at(0));
    CHECK(pool.refused(request) == Code::kStale);
  }
  SECTION("of another base") {
    request.base = 2;
    CHECK(pool.refused(request) == Code::kStale);
  }
}

TEST_CASE(
    "what another session of the file has stored in the same place is not this one's commit") {
  Interrupted pool;
  REQUIRE(pool.client->call(pool.commit()));
  pool.restart();
  auto request = pool.resume({});
  request.stored = {pool.commit(kFirst, 8).written.chunks.at(0)};
  CHECK(pool.refused(request) == Code::kStale);
}

TEST_CASE("a file that others have made meanwhile under the name is not replaced") {
  Interrupted pool;
  pool.restart();
  TestClient other(pool.world, "other");
  pool.pass(3s);
  REQUIRE(other.write("a", kLength, 0));
  CHECK(pool.refused(pool.resume({})) == Code::kStale);
}

TEST_CASE("two clients go on with the file that both have made") {
  Interrupted pool;
  TestClient other(pool.world, "other");
  const auto joined = other.create("a", 4096);
  REQUIRE(joined);
  REQUIRE(joined->attributes.id == pool.file);
  pool.restart();
  other.connect();
  other.id = {};
  other.register_now();
  REQUIRE(pool.client->call(pool.resume({kFirst})));
  auto request = pool.resume({});
  request.client = other.id;
  request.session = joined->session;
  REQUIRE(other.call(request));
  REQUIRE(pool.client->call(pool.commit()));
  CHECK(other.lookup("a")->version == 1);
}

namespace {

/// Two clients that write the same new file, after a restart.
struct Shared : Interrupted {
  Shared() : other(world, "other") {
    const auto joined = other.create("a", 4096);
    REQUIRE(joined);
    REQUIRE(joined->attributes.id == file);
    other_session = joined->session;
    restart();
    other.connect();
    other.id = {};
    other.register_now();
  }
  /// Resumes the session of the client that has changed nothing.
  void other_resumes() {
    auto request = resume({});
    request.client = other.id;
    request.session = other_session;
    REQUIRE(other.call(request));
  }
  TestClient other;
  SessionId other_session;
};

}  // namespace

TEST_CASE("a new file comes back as it was renamed and changed, whoever comes first") {
  Shared pool;
  const bool first = GENERATE(true, false);
  if (!first) pool.other_resumes();
  auto request = pool.resume({kFirst});
  request.renamed = request.changed = true;
  request.name = "b";
  request.mode = 0600;
  request.uid = 7;
  request.gid = 8;
  request.atime_ns = 1000;
  request.mtime_ns = 2000;
  request.xattrs = {{"user.k", "v"}};
  const auto resumed = pool.client->call(request);
  REQUIRE(resumed);
  if (first) pool.other_resumes();
  CHECK(pool.client->lookup("a").error().code == Code::kNotFound);
  const auto there = pool.client->lookup("b");
  REQUIRE(there);
  CHECK(there->id == pool.file);
  CHECK(there->mode == 0600);
  CHECK(there->uid == 7);
  CHECK(there->gid == 8);
  CHECK(there->atime_ns == 1000);
  CHECK(there->mtime_ns == 2000);
  REQUIRE(pool.client->call(pool.commit()));
  TestClient third(pool.world, "third");
  CHECK(third.lookup("b")->mode == 0600);
  CHECK(third.lookup("a").error().code == Code::kNotFound);
  CHECK(third.call(msg::GetXattrs{pool.file})->attributes == request.xattrs);
}

TEST_CASE("who has opened a new file by its number goes on with it when another knows its name") {
  Shared pool;
  auto request = pool.resume({});
  request.parent = {};
  request.name = {};
  CHECK(pool.refused(request) == Code::kStale);
  pool.other_resumes();
  REQUIRE(pool.client->call(request));
  CHECK(pool.client->lookup("a")->id == pool.file);
}

TEST_CASE("a new file that was removed gets no name again, whoever comes first") {
  Shared pool;
  const bool first = GENERATE(true, false);
  if (!first) pool.other_resumes();
  auto request = pool.resume({kFirst});
  request.renamed = true;
  request.parent = {};
  request.name = {};
  const auto resumed = pool.client->call(request);
  REQUIRE(resumed);
  CHECK(resumed->attributes.link_count == 0);
  if (first) pool.other_resumes();
  const auto committed = pool.client->call(pool.commit());
  REQUIRE(committed);
  CHECK(committed->attributes.version == 1);
  for (TestClient* const each : {&*pool.client, &pool.other}) {
    CHECK(each->lookup("a").error().code == Code::kNotFound);
  }
  for (auto* const each : {&*pool.client, &pool.other}) {
    const SessionId session = each == &pool.other ? pool.other_session : pool.session;
    REQUIRE(each->call(msg::CloseSession{session, false, 0, false}));
  }
  pool.world.pass(1s);
  CHECK(pool.world.service->state().file(pool.file) == nullptr);
  CHECK(pool.world.service->pool().space().free_bytes(pool.benefactor->id) == kArena);
}

TEST_CASE("a new file that was renamed onto another still replaces it") {
  Interrupted pool;
  TestClient other(pool.world, "other");
  REQUIRE(other.write("b", kLength, 0));
  REQUIRE(pool.client->call(msg::MakeDirectory{pool.client->id, kRootFile, "d", 0755, 0, 0}));
  pool.restart();
  auto request = pool.resume({kFirst});
  request.name = "b";
  CHECK(pool.refused(request) == Code::kStale);  // another client has created that name
  request.renamed = true;
  request.name = "d";
  CHECK(pool.refused(request) == Code::kStale);
  request.name = "b";
  REQUIRE(pool.client->call(request));
  REQUIRE(pool.client->call(pool.commit()));
  CHECK(pool.client->lookup("b")->id == pool.file);
}

TEST_CASE("attributes that are too large leave nothing of a file behind") {
  Interrupted pool;
  pool.restart();
  auto request = pool.resume({kFirst});
  request.changed = true;
  request.xattrs = {{"user.a", std::string(limits::kXattrBytesMax - 100, 'a')},
                    {"user.b", std::string(limits::kXattrBytesMax - 100, 'b')},
                    {"user.c", std::string(200, 'c')}};
  CHECK(pool.refused(request) == Code::kNoSpace);
  CHECK(pool.world.service->state().file(pool.file) == nullptr);
  REQUIRE(pool.client->call(pool.resume({kFirst})));
}

TEST_CASE("chunks of the pool that a session refers to must be there") {
  Interrupted pool;
  auto commit = pool.commit();
  REQUIRE(pool.client->call(commit));
  const Chunk& chunk = commit.written.chunks.at(0);
  const auto second = pool.client->create("b");
  REQUIRE(second);
  pool.restart();
  auto request = pool.resume({});
  request.session = second->session;
  request.file = second->attributes.id;
  request.name = "b";
  request.held = {{chunk.name, chunk.length}};
  SECTION("it is, and is held") {
    REQUIRE(pool.client->call(request));
    REQUIRE(pool.client->call(msg::Remove{pool.client->id, kRootFile, "a", false}));
    commit.session = second->session;
    CHECK(pool.client->call(commit));
  }
  SECTION("it is not") {
    request.held[0].length += 1;
    CHECK(pool.refused(request) == Code::kStale);
  }
}

TEST_CASE("what no earlier manager can have answered is not gone on with") {
  Interrupted pool;
  pool.restart();
  const auto now = pool.client->create("now");
  REQUIRE(now);
  auto request = pool.resume({kFirst});
  SECTION("a session of this epoch") { request.session = now->session; }
  SECTION("a file of this epoch") { request.file = now->attributes.id; }
  SECTION("no session") { request.session = {}; }
  SECTION("an extent beside its place") { request.stored[0].copies[0].offset += 8; }
  SECTION("a chunk that is too long") { request.stored[0].length = limits::kChunkBytesMax + 1; }
  SECTION("a chunk in no extent") { request.stored[0].copies.clear(); }
  CHECK(pool.refused(request) == Code::kInvalidArgument);
  request = pool.resume({kFirst});
  request.part = 1;
  CHECK(pool.refused(request) == Code::kFenced);
  CHECK(pool.client->call(pool.resume({kFirst})));
}

TEST_CASE("what is stored may be told in parts") {
  Interrupted pool;
  pool.restart();
  auto first = pool.resume({kFirst});
  first.last = false;
  REQUIRE(pool.client->call(first));
  auto second = pool.resume({kSecond});
  second.part = 2;
  CHECK(pool.refused(second) == Code::kInvalidArgument);
  second.part = 1;
  REQUIRE(pool.client->call(second));
  REQUIRE(pool.client->call(pool.commit(kSecond, 7 + kSecond)));
}

TEST_CASE("a session goes on with chunks of which one place has come back") {
  World world;
  world.config.pool.copies = 2;
  world.start();
  TestBenefactor first(world, "b1", 1, kArena, "h1");
  TestBenefactor second(world, "b2", 2, kArena, "h2");
  TestClient client(world, "client");
  msg::OpenSession open;
  open.client = client.id;
  open.parent = kRootFile;
  open.name = "a";
  open.want_bytes = extent_bytes(kLength);
  open.waits_for_copies = true;
  const auto opened = client.call(open);
  REQUIRE(opened);
  REQUIRE(opened->grants.size() == 2);
  auto commit = TestClient::commit_of(opened->session, opened->grants[0], 0, kLength, 7);
  std::vector<Extent>& copies = commit.written.chunks[0].copies;
  copies.push_back({opened->grants[1].benefactor, opened->grants[1].offset});
  TestBenefactor& lost = copies[0].benefactor == first.id ? first : second;
  TestBenefactor& back = copies[0].benefactor == first.id ? second : first;
  msg::ResumeSession resume;
  resume.session = opened->session;
  resume.file = opened->attributes.id;
  resume.parent = kRootFile;
  resume.name = "a";
  resume.mode = 0644;
  resume.stored = commit.written.chunks;
  resume.waits_for_copies = true;
  const std::vector<Extent> told = copies;
  world.restart();
  back.connect();
  back.register_now();
  SECTION("the other one does not come back") {}
  SECTION("in the other one it is not what it was") {
    lost.connect();
    lost.register_now();
    lost.wrong = {told[0].offset};
  }
  client.connect();
  client.id = {};
  client.register_now();
  resume.client = client.id;
  std::optional<rpc::Answer> answer;
  client.peer().call_as(rpc::next_call_id(), resume, limits::kOperationDeadline,
                        [&](rpc::Answer got) { answer = std::move(got); });
  const auto live = [&] {
    world.pass(1s);
    for (TestBenefactor* const each : {&first, &second}) {
      if (each == &back || world.service->pool().is_reachable(Extent{each->id, 0})) each->beat();
    }
    REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
  };
  for (int i = 0; i < 13 && !answer; ++i) live();
  REQUIRE(answer);
  REQUIRE(answer->has_value());
  REQUIRE(client.call(commit));
  const State& state = world.service->state();
  const auto chunk = state.file(opened->attributes.id)->newest.slices.at(0).chunk;
  CHECK(state.chunks().get(chunk).copies == std::vector<Extent>{told[1]});
  CHECK(world.service->services().administration.audit().reply().broken.empty());
}
