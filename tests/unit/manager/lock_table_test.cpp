#include "manager/locks/lock_table.h"

#include <limits>

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::manager;
using namespace std::chrono_literals;
using Kind = msg::LockKind;
using msg::LockOutcome;

namespace {

constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max();
constexpr Time kNow{1s};
constexpr Time kLater{1h};

FileLock record(std::uint64_t owner, Kind kind, std::uint64_t first = 0, std::uint64_t last = kEnd,
                std::uint64_t file = 10) {
  return {FileId{file}, msg::LockSpace::kRecord, kind, {ClientId{1}, owner}, 7, first, last};
}

FileLock flock(std::uint64_t client, Kind kind) {
  return {FileId{10}, msg::LockSpace::kFlock, kind, {ClientId{client}, 1}, 7, 0, kEnd};
}

LockOutcome take(LockTable& table, const FileLock& lock) { return table.take(lock).value(); }

std::vector<WaitId> grant(LockTable& table, Time now = kNow) {
  return table.grant([](const WaitId&) { return true; }, now);
}

}  // namespace

TEST_CASE("locks exclude each other as flock and fcntl say") {
  LockTable table;
  CHECK(take(table, record(1, Kind::kShared, 0, 9)) == LockOutcome::kGranted);
  CHECK(take(table, record(2, Kind::kShared, 5, 20)) == LockOutcome::kGranted);
  CHECK(take(table, record(3, Kind::kExclusive, 9, 9)) == LockOutcome::kRefused);
  CHECK(take(table, record(3, Kind::kExclusive, 21, 30)) == LockOutcome::kGranted);
  CHECK(take(table, record(1, Kind::kExclusive, 0, 4)) == LockOutcome::kGranted);
  CHECK(take(table, record(1, Kind::kExclusive, 0, 5)) == LockOutcome::kRefused);
  CHECK(take(table, record(1, Kind::kExclusive, 0, 4, 11)) == LockOutcome::kGranted);
  // Locks of flock() and of fcntl() do not see each other.
  CHECK(take(table, flock(4, Kind::kExclusive)) == LockOutcome::kGranted);
  CHECK(take(table, flock(5, Kind::kShared)) == LockOutcome::kRefused);
  const auto held = table.excluding(record(9, Kind::kShared, 2, 3));
  REQUIRE(held);
  CHECK(held->owner.number == 1);
  CHECK(held->first == 0);
  CHECK(held->last == 4);
}

TEST_CASE("of several locks that exclude a lock, the one that begins first is told") {
  LockTable table;
  CHECK(take(table, record(1, Kind::kExclusive, 10, 14)) == LockOutcome::kGranted);
  CHECK(take(table, record(1, Kind::kShared, 1, 5)) == LockOutcome::kGranted);
  const auto all = table.excluding(record(9, Kind::kExclusive, 0, kEnd));
  REQUIRE(all);
  CHECK(all->kind == Kind::kShared);
  CHECK(all->first == 1);
  const auto behind = table.excluding(record(9, Kind::kExclusive, 6, kEnd));
  REQUIRE(behind);
  CHECK(behind->first == 10);
}

TEST_CASE("a release may leave two locks, and locks side by side become one") {
  LockTable table;
  CHECK(take(table, record(1, Kind::kExclusive, 0, kEnd)) == LockOutcome::kGranted);
  REQUIRE(table.release(record(1, Kind::kNone, 10, 19)));
  CHECK(table.lock_count() == 2);
  CHECK(take(table, record(2, Kind::kExclusive, 10, 19)) == LockOutcome::kGranted);
  CHECK(take(table, record(2, Kind::kShared, 9, 9)) == LockOutcome::kRefused);
  CHECK(take(table, record(2, Kind::kShared, 20, 20)) == LockOutcome::kRefused);
  REQUIRE(table.release(record(2, Kind::kNone)));
  CHECK(take(table, record(1, Kind::kExclusive, 10, 19)) == LockOutcome::kGranted);
  CHECK(table.lock_count() == 1);
  CHECK(take(table, record(1, Kind::kShared, 5, 6)) == LockOutcome::kGranted);
  CHECK(table.lock_count() == 3);
  REQUIRE(table.release(record(1, Kind::kNone)));
  CHECK(table.lock_count() == 0);
}

TEST_CASE("waits are granted in the order in which they came") {
  LockTable table;
  REQUIRE(take(table, flock(1, Kind::kExclusive)) == LockOutcome::kGranted);
  const auto wait = [&](std::uint64_t client, Kind kind) {
    return table.wait(flock(client, kind), {ClientId{client}, 5}, kNow, kLater).value();
  };
  CHECK(wait(2, Kind::kExclusive) == LockOutcome::kWaits);
  CHECK(wait(3, Kind::kShared) == LockOutcome::kWaits);
  CHECK(wait(4, Kind::kShared) == LockOutcome::kWaits);
  CHECK(wait(2, Kind::kExclusive) == LockOutcome::kWaits);  // a repeat
  CHECK(table.wait_count() == 3);
  CHECK(grant(table).empty());
  REQUIRE(table.release(flock(1, Kind::kNone)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{2}, 5}});
  REQUIRE(table.release(flock(2, Kind::kNone)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{3}, 5}, {ClientId{4}, 5}});
  CHECK(table.lock_count() == 2);
}

TEST_CASE("waits that are cancelled, not repeated, or of a client that has ended get no lock") {
  LockTable table;
  REQUIRE(take(table, flock(1, Kind::kExclusive)) == LockOutcome::kGranted);
  for (std::uint64_t client = 2; client <= 4; ++client) {
    const Time until{client == 3 ? 10s : 20s};
    REQUIRE(table.wait(flock(client, Kind::kExclusive), {ClientId{client}, 5}, kNow, until));
  }
  table.cancel({ClientId{2}, 5});
  table.expire(Time{15s});
  table.end(ClientId{1});
  CHECK(table.lock_count() == 0);
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{4}, 5}});
  CHECK(table.wait_count() == 0);
}

TEST_CASE("a wait that would close a circle of record locks is a deadlock") {
  LockTable table;
  REQUIRE(take(table, record(1, Kind::kExclusive, 0, 0)) == LockOutcome::kGranted);
  REQUIRE(take(table, record(2, Kind::kExclusive, 1, 1)) == LockOutcome::kGranted);
  REQUIRE(take(table, record(3, Kind::kExclusive, 0, 0, 11)) == LockOutcome::kGranted);
  CHECK(table.wait(record(1, Kind::kExclusive, 1, 1), {ClientId{1}, 1}, kNow, kLater) ==
        LockOutcome::kWaits);
  CHECK(table.wait(record(2, Kind::kExclusive, 0, 0, 11), {ClientId{1}, 2}, kNow, kLater) ==
        LockOutcome::kWaits);
  CHECK(table.wait(record(3, Kind::kShared, 0, 0), {ClientId{1}, 3}, kNow, kLater) ==
        LockOutcome::kDeadlock);
  // The others go on.
  REQUIRE(table.release(record(3, Kind::kNone, 0, kEnd, 11)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{1}, 2}});
}

TEST_CASE("a circle that a granted lock closes is a deadlock of a request that waits already") {
  LockTable table;
  const auto all = [](const WaitId&) { return true; };
  const auto none = [](const WaitId&) { return false; };
  const auto lock_1 = [](std::uint64_t owner) { return record(owner, Kind::kExclusive, 1, 1); };
  const auto lock_2 = [](std::uint64_t owner) { return record(owner, Kind::kExclusive, 2, 2, 11); };
  const auto wait = [&](const FileLock& lock, std::uint64_t ticket) {
    return table.wait(lock, {ClientId{1}, ticket}, kNow, kLater).value();
  };
  REQUIRE(take(table, lock_1(1)) == LockOutcome::kGranted);
  REQUIRE(take(table, lock_2(3)) == LockOutcome::kGranted);
  // Two threads of owner 2 wait, the second one for owner 3, which waits behind the first one.
  CHECK(wait(lock_1(2), 21) == LockOutcome::kWaits);
  CHECK(wait(lock_2(2), 22) == LockOutcome::kWaits);
  CHECK(wait(lock_1(3), 31) == LockOutcome::kWaits);
  CHECK(table.drop_deadlocked(all).empty());
  REQUIRE(table.release(record(1, Kind::kNone, 1, 1)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{1}, 21}});
  SECTION("at once") {
    CHECK(table.drop_deadlocked(all) == std::vector<WaitId>{{ClientId{1}, 22}});
    CHECK(table.drop_deadlocked(all).empty());
  }
  SECTION("when the request is repeated") {
    CHECK(table.drop_deadlocked(none).empty());
    CHECK(wait(lock_2(2), 22) == LockOutcome::kDeadlock);
  }
  CHECK(table.wait_count() == 1);
  REQUIRE(table.release(record(2, Kind::kNone, 1, 1)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{1}, 31}});
}

TEST_CASE("two shared locks of flock() that both become exclusive do not wait for each other") {
  LockTable table;
  REQUIRE(take(table, flock(1, Kind::kShared)) == LockOutcome::kGranted);
  REQUIRE(take(table, flock(2, Kind::kShared)) == LockOutcome::kGranted);
  CHECK(table.wait(flock(1, Kind::kExclusive), {ClientId{1}, 5}, kNow, kLater) ==
        LockOutcome::kWaits);
  CHECK(table.wait(flock(2, Kind::kExclusive), {ClientId{2}, 5}, kNow, kLater) ==
        LockOutcome::kWaits);
  // flock() has given up both shared locks. The older request comes first.
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{1}, 5}});
  REQUIRE(table.release(flock(1, Kind::kNone)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{2}, 5}});
}

TEST_CASE("readers that come one after the other do not keep a writer out") {
  LockTable table;
  const auto wait = [&](std::uint64_t client, Kind kind, Time now = kNow) {
    return table.wait(flock(client, kind), {ClientId{client}, 5}, now, kLater).value();
  };
  REQUIRE(take(table, flock(1, Kind::kShared)) == LockOutcome::kGranted);
  CHECK(wait(2, Kind::kExclusive) == LockOutcome::kWaits);
  CHECK(wait(3, Kind::kShared) == LockOutcome::kWaits);
  CHECK(wait(3, Kind::kShared) == LockOutcome::kWaits);  // a repeat
  CHECK(grant(table).empty());
  // A request that must not wait answers for the locks that are held.
  CHECK(take(table, flock(4, Kind::kShared)) == LockOutcome::kGranted);
  REQUIRE(table.release(flock(1, Kind::kNone)));
  REQUIRE(table.release(flock(4, Kind::kNone)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{2}, 5}});
  REQUIRE(table.release(flock(2, Kind::kNone)));
  CHECK(grant(table) == std::vector<WaitId>{{ClientId{3}, 5}});
}

TEST_CASE("a reader that a holder waits for passes a writer after some time") {
  LockTable table;
  const auto wait = [&](std::uint64_t client, Kind kind, Time now) {
    return table.wait(flock(client, kind), {ClientId{client}, 5}, now, kLater).value();
  };
  const Time later = kNow + LockTable::kPassAfter;
  REQUIRE(take(table, flock(1, Kind::kShared)) == LockOutcome::kGranted);
  CHECK(wait(2, Kind::kExclusive, kNow) == LockOutcome::kWaits);
  CHECK(wait(3, Kind::kShared, kNow) == LockOutcome::kWaits);
  CHECK(wait(4, Kind::kShared, kNow + 1ms) == LockOutcome::kWaits);
  CHECK(grant(table, later - 1ms).empty());
  CHECK(grant(table, later) == std::vector<WaitId>{{ClientId{3}, 5}});
  CHECK(wait(4, Kind::kShared, later + 1ms) == LockOutcome::kGranted);
  CHECK(table.wait_count() == 1);
}

TEST_CASE("a process that has a lock on a file does not stand in line for more") {
  LockTable table;
  const auto wait = [&](const FileLock& lock) {
    return table.wait(lock, {lock.owner.client, lock.owner.number}, kNow, kLater).value();
  };
  REQUIRE(take(table, record(1, Kind::kShared, 0, 9)) == LockOutcome::kGranted);
  FileLock writer = record(2, Kind::kExclusive);
  writer.pid = 8;
  CHECK(wait(writer) == LockOutcome::kWaits);
  CHECK(wait(record(1, Kind::kShared, 10, 19)) == LockOutcome::kGranted);
  // Another file of the same process, as flock() sees it.
  CHECK(wait(record(3, Kind::kShared, 20, 29)) == LockOutcome::kGranted);
  FileLock other = record(4, Kind::kShared, 20, 29);
  other.pid = 9;
  CHECK(wait(other) == LockOutcome::kWaits);
}
