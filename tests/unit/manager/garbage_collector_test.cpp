#include "manager/arenas/garbage_collector.h"

#include <algorithm>

#include "manager/arenas/scrubber.h"
#include "manager/replication/copy_planner.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 4 * limits::kMiB;
constexpr std::uint32_t kChunk = 100000;

struct TestPool : HostsPool {
  explicit TestPool(std::vector<std::string> hosts = {"x"}, std::uint32_t copies = 1)
      : HostsPool(copies, hosts, kArena) {}
  TestBenefactor& first() { return *benefactors.front(); }
  Extent place_of(FileId file) const { return copies_of(file).at(0); }
  /// Writes a file of one chunk, and the chunk's header in the arena.
  FileId write(const std::string& name, std::uint64_t chunk_name) {
    const auto file = client->write(name, kChunk, chunk_name);
    REQUIRE(file);
    const Extent at = place_of(*file);
    of(at.benefactor).put_header(at.offset, kChunk);
    return *file;
  }
  void remove(const std::string& name) {
    REQUIRE(client->call(msg::Remove{client->id, kRootFile, name}));
  }
  std::uint64_t begin(bool execute) {
    const auto reply = client->call(msg::CollectGarbage{execute, 0});
    REQUIRE(reply);
    return reply->round;
  }
  /// Runs a whole round; returns the figures of the first benefactor.
  msg::CollectGarbage::Arena collect(bool execute) { return end_of(begin(execute)); }
  msg::CollectGarbage::Arena end_of(std::uint64_t round) {
    for (int i = 0; i < 200 && !service->planners().garbage.ended(round); ++i) live(1s);
    const auto reply = client->call(msg::CollectGarbage{false, round});
    REQUIRE(reply);
    REQUIRE(reply->ended);
    REQUIRE(!reply->arenas.empty());
    return reply->arenas.front();
  }
  void come_back() {
    for (const auto& each : benefactors) {
      each->connect();
      each->register_now();
    }
    client->connect();
    client->id = {};
    client->register_now();
  }
  /// Whether the extent lies in free space, which may be granted.
  bool is_free(const Extent& extent) {
    bool found = false;
    service->pool().space().for_each_free(extent.benefactor, [&](Range range) {
      found |= range.offset <= extent.offset && extent.offset < range.end();
    });
    return found;
  }
};

bool overlaps(const std::vector<Grant>& grants, std::uint64_t offset) {
  return std::ranges::any_of(grants, [&](const Grant& grant) {
    return grant.offset < offset + limits::kExtentHeaderBytes &&
           offset < grant.offset + grant.length;
  });
}

}  // namespace

TEST_CASE("what was deleted is planned first, and forgotten when asked for") {
  TestPool pool;
  pool.write("a", 1);
  const Extent gone = pool.place_of(pool.write("b", 2));
  pool.remove("b");
  const auto plan = pool.collect(false);
  CHECK(plan.whole);
  CHECK(plan.garbage_extents == 1);
  CHECK(plan.garbage_bytes == extent_bytes(kChunk));
  CHECK(plan.forgotten_extents == 0);
  CHECK(plan.used_extents == 1);
  CHECK(pool.first().headers.size() == 2);
  const auto done = pool.collect(true);
  CHECK(done.garbage_extents == 1);
  CHECK(done.forgotten_extents == 1);
  CHECK(pool.first().headers.size() == 1);
  CHECK(pool.first().headers.count(gone.offset) == 0);
  CHECK(pool.broken().empty());
  CHECK(pool.collect(false).garbage_extents == 0);
  CHECK(pool.first().all<msg::CheckExtents>().empty());
}

TEST_CASE("an arena is reported in pages, and each is asked for once") {
  TestPool pool;
  pool.first().page_bytes = 192 * 1024;
  for (std::uint64_t i = 1; i <= 20; ++i) pool.write("f" + std::to_string(i), i);
  for (std::uint64_t i = 1; i <= 20; i += 2) pool.remove("f" + std::to_string(i));
  const auto done = pool.collect(true);
  CHECK(done.whole);
  CHECK(done.forgotten_extents == 10);
  CHECK(done.used_extents == 10);
  CHECK(done.missing_extents == 0);
  const auto pages = pool.first().all<msg::ReportExtents>();
  CHECK(pages.size() == (kArena + pool.first().page_bytes - 1) / pool.first().page_bytes);
  CHECK(pool.broken().empty());
}

TEST_CASE("what an open session has written stays, and goes when nobody has committed it") {
  TestPool pool;
  const auto opened = pool.client->create("a", kArena / 4);
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  pool.first().put_header(grant.offset, kChunk);
  auto figures = pool.collect(true);
  CHECK(figures.granted_extents == 1);
  CHECK(figures.garbage_extents == 0);
  // The dead session's client may still write, so its space waits for the fence.
  pool.first().fences = false;
  const ClientId before = pool.client->id;
  REQUIRE(pool.client->call(msg::GoodbyeClient{before}));
  pool.client->id = {};
  pool.client->register_now();
  figures = pool.collect(true);
  CHECK(figures.waiting_extents == 1);
  CHECK(figures.garbage_extents == 0);
  pool.first().fences = true;
  pool.live(3s);
  figures = pool.collect(true);
  CHECK(figures.waiting_extents == 0);
  CHECK(figures.forgotten_extents == 1);
  CHECK(pool.first().headers.empty());
}

TEST_CASE("what was granted, or committed, since the report was made stays") {
  const bool commits = GENERATE(false, true);
  TestPool pool;
  const Extent gone = pool.place_of(pool.write("a", 1));
  pool.remove("a");
  pool.first().hold_back = true;
  const auto round = pool.begin(true);
  pool.live(1s);
  REQUIRE(pool.first().held.size() == 1);
  const auto opened = pool.client->create("b", extent_bytes(kChunk));
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  REQUIRE(grant.offset == gone.offset);
  if (commits) {
    auto commit = TestClient::commit_of(opened->session, grant, 0, kChunk, 2);
    commit.end = true;
    REQUIRE(pool.client->call(commit));
  }
  pool.first().let_go();
  const auto figures = pool.end_of(round);
  CHECK(figures.garbage_extents == 0);
  CHECK((commits ? figures.used_extents : figures.granted_extents) == 1);
  CHECK(pool.first().all<msg::ForgetExtents>().empty());
  CHECK(pool.first().headers.size() == 1);
}

TEST_CASE("what is being forgotten is granted to nobody before that is answered") {
  TestPool pool;
  std::vector<std::uint64_t> gone;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    gone.push_back(pool.place_of(pool.write("f" + std::to_string(i), i)).offset);
  }
  for (std::uint64_t i = 1; i <= 3; ++i) pool.remove("f" + std::to_string(i));
  const auto round = pool.begin(true);
  pool.pass(200ms);
  REQUIRE(pool.first().all<msg::ReportExtents>().size() == 1);
  pool.first().hold_back = true;
  pool.pass(200ms);
  REQUIRE(pool.first().all<msg::ForgetExtents>().size() == 1);
  CHECK(pool.broken().empty());
  const auto opened = pool.client->create("b", kArena);
  REQUIRE(opened);
  REQUIRE(!opened->grants.empty());
  for (const std::uint64_t offset : gone) CHECK_FALSE(overlaps(opened->grants, offset));
  REQUIRE(pool.client->call(msg::CloseSession{opened->session}));
  pool.first().let_go();
  CHECK(pool.end_of(round).forgotten_extents == 3);
  CHECK(pool.broken().empty());
  CHECK(pool.service->pool().space().free_bytes(pool.first().id) == kArena);
}

TEST_CASE("a place that waits for what is being forgotten is answered when that is done") {
  TestPool pool;
  for (std::uint64_t i = 1; i <= 39; ++i) pool.write("f" + std::to_string(i), i);
  for (std::uint64_t i = 1; i <= 39; ++i) pool.remove("f" + std::to_string(i));
  pool.begin(true);
  pool.pass(200ms);
  pool.first().hold_back = true;
  pool.pass(200ms);
  // No chunk of that length fits between the ranges being cleared, and nothing else makes room.
  const auto opened = pool.client->create("b");
  REQUIRE(opened);
  std::optional<rpc::Answer> answer;
  pool.client->peer().call(msg::Place{opened->session, {}, 2 * kArena, {}, {}, 2'500'000},
                           limits::kCallDeadline,
                           [&](rpc::Answer got) { answer = std::move(got); });
  pool.pass(1s);
  CHECK_FALSE(answer.has_value());
  pool.first().let_go();
  pool.pass(1s);
  REQUIRE(answer.has_value());
  CHECK(answer->has_value());
}

TEST_CASE("space whose forgetting was not answered is kept until a later one is") {
  TestPool pool;
  const Extent gone = pool.place_of(pool.write("a", 1));
  pool.remove("a");
  const auto round = pool.begin(true);
  pool.pass(200ms);
  pool.first().hold_back = true;
  pool.pass(200ms);
  REQUIRE(pool.first().all<msg::ForgetExtents>().size() == 1);
  pool.first().disconnect();
  pool.pass(1s);
  CHECK(pool.service->planners().garbage.ended(round));
  CHECK(pool.broken().empty());
  pool.first().connect();
  pool.first().register_now();
  pool.first().held.clear();
  pool.first().held_requests.clear();
  pool.pass(1s);
  CHECK(pool.first().all<msg::ForgetExtents>().back().extents.empty());
  CHECK_FALSE(pool.is_free(gone));
  pool.first().let_go();
  pool.live(1s);
  CHECK(pool.is_free(gone));
  CHECK(pool.broken().empty());
}

TEST_CASE("what is copied somewhere stays while the copy is made, and afterwards") {
  TestPool pool({"x", "y"}, 2);
  for (const auto& each : pool.benefactors) each->hold_back = true;
  const auto file = pool.client->write("a", kChunk, 1);
  REQUIRE(file);
  pool.live(1s);
  const Extent from = pool.place_of(*file);
  TestBenefactor& target = *pool.benefactors[from.benefactor == pool.first().id ? 1 : 0];
  const auto copies = target.all<msg::CopyExtents>();
  REQUIRE(copies.size() == 1);
  pool.of(from.benefactor).put_header(from.offset, kChunk);
  target.put_header(copies[0].copies.at(0).to_offset, kChunk);
  // The copy request stays unanswered; reports are answered.
  auto held = std::move(target.held.front());
  target.held.clear();
  target.held_requests.clear();
  for (const auto& each : pool.benefactors) each->let_go();
  pool.collect(true);
  const auto& arenas = pool.service->planners().garbage.arenas();
  REQUIRE(arenas.size() == 2);
  CHECK(arenas[0].copying_extents + arenas[1].copying_extents == 1);
  CHECK(arenas[0].garbage_extents + arenas[1].garbage_extents == 0);
  held(msg::Reply{msg::CopyExtents::Reply{}});
  pool.live(1s);
  pool.collect(true);
  CHECK(arenas[0].used_extents + arenas[1].used_extents == 2);
  CHECK(target.headers.size() == 1);
}

TEST_CASE(
    "a chunk without its header is checked by its benefactor, and made again when it is wrong") {
  const bool wrong = GENERATE(false, true);
  TestPool pool({"x", "y"}, 2);
  const FileId file = pool.write("a", 1);
  pool.live(2s);
  const auto& state = pool.service->state();
  const auto chunk = state.file(file)->newest.slices.at(0).chunk;
  const auto copies = state.chunks().get(chunk).copies;
  REQUIRE(copies.size() == 2);
  // The first copy has its header, the second copy lacks it.
  TestBenefactor& lacks = pool.of(copies[1].benefactor);
  REQUIRE(lacks.headers.empty());
  if (wrong) lacks.wrong.insert(copies[1].offset);
  pool.collect(false);
  CHECK(lacks.all<msg::CheckExtents>().empty());
  pool.collect(true);
  std::uint64_t missing = 0;
  for (const auto& arena : pool.service->planners().garbage.arenas())
    missing += arena.missing_extents;
  CHECK(missing == 1);
  pool.live(3s);
  const auto checks = lacks.all<msg::CheckExtents>();
  REQUIRE(checks.size() == 1);
  REQUIRE(checks[0].extents.size() == 1);
  CHECK(checks[0].extents[0].offset == copies[1].offset);
  CHECK(pool.service->planners().scrubber.figures().wrong_chunks == (wrong ? 1 : 0));
  CHECK(pool.service->planners().copies.repaired() == (wrong ? 1 : 0));
  CHECK(state.chunks().get(chunk).copies.size() == 2);
  CHECK(pool.broken().empty());
}

TEST_CASE("a chunk that was committed since the report was made is asked for again, not checked") {
  TestPool pool;
  const auto opened = pool.client->create("a", extent_bytes(kChunk));
  REQUIRE(opened);
  const Grant grant = opened->grants.at(0);
  const auto round = pool.begin(true);
  pool.pass(200ms);
  REQUIRE(pool.first().all<msg::ReportExtents>().size() == 1);
  pool.first().put_header(grant.offset, kChunk);
  auto commit = TestClient::commit_of(opened->session, grant, 0, kChunk, 2);
  commit.end = true;
  REQUIRE(pool.client->call(commit));
  const auto figures = pool.end_of(round);
  CHECK(pool.first().all<msg::ReportExtents>().size() == 2);
  CHECK(figures.missing_extents == 0);
  CHECK(figures.used_extents == 1);
}

TEST_CASE("nothing is forgotten where clients of an earlier manager may still write") {
  TestPool pool;
  pool.write("a", 1);
  const Extent gone = pool.place_of(pool.write("b", 2));
  pool.remove("b");
  pool.first().fences = false;
  pool.restart();
  pool.come_back();
  auto figures = pool.collect(true);
  CHECK(figures.garbage_extents == 1);
  CHECK(figures.forgotten_extents == 0);
  CHECK(pool.first().headers.count(gone.offset) == 1);
  pool.first().fences = true;
  pool.live(3s);
  figures = pool.collect(true);
  CHECK(figures.forgotten_extents == 1);
  CHECK(pool.first().headers.size() == 1);
  CHECK(pool.broken().empty());
}

TEST_CASE("a benefactor that is not there is named as one that has not reported") {
  TestPool pool({"x", "y"});
  pool.benefactors[1]->disconnect();
  CHECK(pool.collect(false).whole);
  REQUIRE(pool.service->planners().garbage.arenas().size() == 2);
  CHECK_FALSE(pool.service->planners().garbage.arenas()[1].whole);
  // A round does not wait for a benefactor that is gone for good.
  pool.live(15s);
  pool.collect(false);
  CHECK(pool.service->planners().garbage.arenas().size() == 1);
}

TEST_CASE("rounds come by themselves after each period") {
  TestPool pool;
  pool.config.gc_period = 60s;
  pool.restart();
  pool.come_back();
  pool.write("a", 1);
  pool.remove("a");
  pool.live(55s);
  CHECK(pool.first().all<msg::ReportExtents>().empty());
  pool.live(8s);
  CHECK(pool.first().all<msg::ReportExtents>().size() == 1);
  CHECK(pool.first().headers.empty());
  pool.live(120s);
  CHECK(pool.first().all<msg::ReportExtents>().size() >= 2);
}

TEST_CASE("a report that cannot be ends the round there, and nothing is forgotten") {
  TestPool pool;
  const int kind = GENERATE(0, 1, 2);
  pool.first().hold_back = true;
  const auto round = pool.begin(true);
  pool.live(1s);
  REQUIRE(pool.first().held.size() == 1);
  msg::ReportExtents::Reply reply;
  reply.end = kind == 0 ? 2 * kArena : kArena;
  reply.extents = {{kind == 1 ? 32U : 640U, 10, 1}, {kind == 2 ? 640U : 1280U, 10, 1}};
  pool.first().held.front()(msg::Reply{reply});
  pool.first().held.clear();
  const auto figures = pool.end_of(round);
  CHECK_FALSE(figures.whole);
  CHECK(pool.first().all<msg::ForgetExtents>().empty());
}

TEST_CASE("a round that is asked for while one is under way comes behind it") {
  TestPool pool;
  pool.write("a", 1);
  pool.remove("a");
  const auto plan = pool.begin(false);
  const auto next = pool.begin(true);
  CHECK(next == plan + 1);
  CHECK_FALSE(pool.service->planners().garbage.ended(plan));
  CHECK_FALSE(pool.service->planners().garbage.ended(next));
  CHECK(pool.end_of(next).forgotten_extents == 1);
  CHECK(pool.service->planners().garbage.ended(plan));
  CHECK(pool.service->planners().garbage.ended(next + 7));
}
