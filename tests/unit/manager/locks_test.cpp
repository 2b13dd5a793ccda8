// Tests locks between clients, and commits of sessions that append.
#include <limits>
#include <optional>

#include "manager/service/service.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;
using Kind = msg::LockKind;
using msg::LockOutcome;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::uint32_t kLength = 1000;

msg::SetLock wanted(const TestClient& client, Kind kind, std::uint64_t ticket = 0) {
  msg::SetLock out;
  out.client = client.id;
  out.file = FileId{77};
  out.kind = kind;
  out.owner = 1;
  out.last = std::numeric_limits<std::uint64_t>::max();
  out.ticket = ticket;
  return out;
}

LockOutcome ask(TestClient& client, Kind kind) {
  return client.call(wanted(client, kind)).value().outcome;
}

/// Sends a request that waits. The result is set when the manager answers.
std::shared_ptr<std::optional<LockOutcome>> wait(World& world, TestClient& client,
                                                 const msg::SetLock& request) {
  auto outcome = std::make_shared<std::optional<LockOutcome>>();
  client.peer().call(request, limits::kCallDeadline, [outcome](rpc::Answer answer) {
    if (answer) *outcome = std::get<msg::SetLock::Reply>(*answer).outcome;
  });
  world.turn();
  return outcome;
}

std::shared_ptr<std::optional<LockOutcome>> wait(World& world, TestClient& client,
                                                 std::uint64_t ticket) {
  return wait(world, client, wanted(client, Kind::kExclusive, ticket));
}

void pass(World& world, std::vector<TestClient*> living, Duration time) {
  for (Duration passed{}; passed < time; passed += 1s) {
    world.pass(1s);
    for (TestClient* client : living) REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
  }
}

}  // namespace

TEST_CASE("a client that waits gets the lock when its owner releases it, or its lease ends") {
  World world;
  world.start();
  TestClient first(world, "first");
  TestClient second(world, "second");
  TestClient third(world, "third");
  CHECK(ask(first, Kind::kExclusive) == LockOutcome::kGranted);
  CHECK(ask(second, Kind::kShared) == LockOutcome::kRefused);
  const auto of_second = wait(world, second, 1);
  const auto of_third = wait(world, third, 1);
  CHECK_FALSE(*of_second);
  CHECK(ask(first, Kind::kNone) == LockOutcome::kGranted);
  world.turn();
  CHECK(*of_second == LockOutcome::kGranted);
  CHECK_FALSE(*of_third);
  // The second client falls silent.
  second.disconnect();
  pass(world, {&first, &third}, limits::kLease + 2s);
  CHECK(*of_third == LockOutcome::kGranted);
  CHECK(ask(first, Kind::kShared) == LockOutcome::kRefused);
}

TEST_CASE("two threads of a process wait, and the lock that the first one gets closes a circle") {
  World world;
  world.start();
  TestClient first(world, "first");
  TestClient second(world, "second");
  TestClient third(world, "third");
  const auto record = [](const TestClient& client, std::uint64_t file, Kind kind,
                         std::uint64_t ticket = 0) {
    msg::SetLock out = wanted(client, kind, ticket);
    out.space = msg::LockSpace::kRecord;
    out.file = FileId{file};
    return out;
  };
  REQUIRE(first.call(record(first, 1, Kind::kExclusive))->outcome == LockOutcome::kGranted);
  REQUIRE(third.call(record(third, 2, Kind::kExclusive))->outcome == LockOutcome::kGranted);
  const auto one = wait(world, second, record(second, 1, Kind::kExclusive, 1));
  const auto other = wait(world, second, record(second, 2, Kind::kExclusive, 2));
  const auto of_third = wait(world, third, record(third, 1, Kind::kExclusive, 1));
  CHECK((!*one && !*other && !*of_third));
  REQUIRE(first.call(record(first, 1, Kind::kNone)));
  world.turn();
  CHECK(*one == LockOutcome::kGranted);
  CHECK(*other == LockOutcome::kDeadlock);
  CHECK_FALSE(*of_third);
  REQUIRE(second.call(record(second, 1, Kind::kNone)));
  world.turn();
  CHECK(*of_third == LockOutcome::kGranted);
}

TEST_CASE("a wait is answered before its deadline, keeps its place, and can be cancelled") {
  World world;
  world.start();
  TestClient first(world, "first");
  TestClient second(world, "second");
  TestClient third(world, "third");
  REQUIRE(ask(first, Kind::kExclusive) == LockOutcome::kGranted);
  const auto once = wait(world, second, 5);
  const auto of_third = wait(world, third, 5);
  pass(world, {&first, &second, &third}, limits::kCallDeadline);
  CHECK(*once == LockOutcome::kWaits);
  CHECK(*of_third == LockOutcome::kWaits);
  const auto third_again = wait(world, third, 5);
  const auto again = wait(world, second, 5);
  REQUIRE(ask(first, Kind::kNone) == LockOutcome::kGranted);
  world.turn();
  CHECK(*again == LockOutcome::kGranted);
  CHECK_FALSE(*third_again);
  REQUIRE(third.call(msg::CancelLock{third.id, 5}));
  CHECK(*third_again == LockOutcome::kRefused);
  REQUIRE(ask(second, Kind::kNone) == LockOutcome::kGranted);
  CHECK(ask(first, Kind::kExclusive) == LockOutcome::kGranted);
}

TEST_CASE("after a restart, locks are claimed before others get them") {
  World world;
  world.start();
  // Without benefactors the restarted manager would wait for no clients.
  TestBenefactor benefactor(world, "b1", 1, kArena);
  std::optional<TestClient> first;
  std::optional<TestClient> second;
  first.emplace(world, "first");
  second.emplace(world, "second");
  REQUIRE(ask(*first, Kind::kExclusive) == LockOutcome::kGranted);
  world.restart();
  benefactor.connect();
  benefactor.register_now();
  for (TestClient* client : {&*first, &*second}) {
    client->connect();
    client->id = {};
    client->register_now();
  }
  CHECK(ask(*second, Kind::kExclusive) == LockOutcome::kRecovering);
  msg::SetLock claim = wanted(*first, Kind::kExclusive);
  claim.claims = true;
  CHECK(first->call(claim).value().outcome == LockOutcome::kGranted);
  pass(world, {&*first, &*second}, 3 * limits::kLease);
  CHECK(ask(*second, Kind::kExclusive) == LockOutcome::kRefused);
  CHECK(ask(*first, Kind::kNone) == LockOutcome::kGranted);
  CHECK(ask(*second, Kind::kExclusive) == LockOutcome::kGranted);
}

TEST_CASE("a commit puts what was appended behind what others have appended") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient first(world, "first");
  TestClient second(world, "second");
  const auto file = first.write("log", kLength, 7);
  REQUIRE(file);
  const auto append = [&](TestClient& client, const msg::OpenSession::Reply& session,
                          std::uint64_t name) {
    const auto placed = client.call(msg::Place{session.session, {}, extent_bytes(kLength), {}, {}});
    REQUIRE(placed);
    // The session rewrites the last 100 bytes of the file, as the kernel does with whole pages.
    auto commit = TestClient::commit_of(session.session, placed->grants.at(0), 0, kLength, name,
                                        session.attributes.size_bytes - 100);
    commit.size_bytes = session.attributes.size_bytes + kLength - 100;
    commit.appends = true;
    commit.append_from = session.attributes.size_bytes;
    return client.call(commit);
  };
  const auto of_first = first.open(*file);
  const auto of_second = second.open(*file);
  REQUIRE(append(first, *of_first, 8));
  const auto last = append(second, *of_second, 9);
  REQUIRE(last);
  CHECK(last->attributes.size_bytes == kLength + 2 * (kLength - 100));
  const auto map = first.call(msg::GetMap{first.id, *file});
  REQUIRE(map);
  REQUIRE(map->page.slices.size() == 4);
  const Slice& moved = map->page.slices.at(3);
  CHECK(moved.file_offset == kLength + kLength - 100);
  CHECK(moved.length == kLength - 100);
  CHECK(moved.chunk_offset == 100);
}
