#include "manager/replication/copy_planner.h"

#include <algorithm>

#include "core/chunk/extent_header.h"
#include "core/policy/copy_scatter.h"
#include "manager/arenas/audit.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::uint32_t kChunk = 100000;

/// A pool that can lose benefactors.
struct TestPool : HostsPool {
  TestPool(std::uint32_t copies, const std::vector<std::string>& hosts)
      : HostsPool(copies, hosts, kArena) {}
  void kill(BenefactorId id) { of(id).disconnect(); }
};

}  // namespace

TEST_CASE("a commit is answered with one copy, and the others are made on other hosts") {
  TestPool pool(3, {"x", "x", "y", "z"});
  for (auto& each : pool.benefactors) each->hold_back = true;
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  CHECK(pool.copies_of(*file).size() == 1);
  auto figures = pool.service->planners().copies.figures();
  CHECK(figures.debt_chunks == 1);
  CHECK(figures.debt_bytes == 2 * kChunk);
  const auto debt = pool.client->call(msg::GetDebt{*file, 1});
  REQUIRE(debt);
  CHECK(debt->bytes == 2 * kChunk);
  CHECK_FALSE(debt->impossible);
  pool.pass(1s);
  for (auto& each : pool.benefactors) each->let_go();
  pool.live(2s);
  const auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 3);
  std::set<std::string> hosts;
  for (const Extent& copy : copies) hosts.insert(pool.of(copy.benefactor).host);
  CHECK(hosts.size() == 3);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  CHECK(pool.broken().empty());
  pool.restart();
  CHECK(pool.copies_of(*file) == copies);
}

TEST_CASE("a copy that was not proven does not count") {
  TestPool pool(2, {"x", "y"});
  for (auto& each : pool.benefactors) each->copies_fail = true;
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(3s);
  CHECK(pool.copies_of(*file).size() == 1);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 1);
  for (auto& each : pool.benefactors) each->copies_fail = false;
  pool.live(4s);
  CHECK(pool.copies_of(*file).size() == 2);
  CHECK(pool.broken().empty());
}

TEST_CASE("what went with a benefactor is made again, the most exposed first") {
  TestPool pool(3, {"x", "y", "z", "u", "v"});
  const auto first = pool.client->write("a", kChunk, 7);
  const auto second = pool.client->write("b", kChunk, 8);
  REQUIRE(second);
  pool.live(2s);
  REQUIRE(pool.copies_of(*first).size() == 3);
  const Extent lost = pool.copies_of(*first).back();
  pool.kill(lost.benefactor);
  pool.live(14s);
  const auto copies = pool.copies_of(*first);
  CHECK(copies.size() == 3);
  CHECK(std::find(copies.begin(), copies.end(), lost) == copies.end());
  CHECK(pool.copies_of(*second).size() == 3);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("two copies are on one host only while there are not enough hosts") {
  TestPool pool(2, {"x", "x"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  REQUIRE(pool.copies_of(*file).size() == 2);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  TestBenefactor& third = pool.add("y");
  const BenefactorId other = third.id;
  third.hold_back = true;
  pool.live(1s);
  // Now that a second host exists, the second copy on the first host counts as missing.
  CHECK(pool.service->planners().copies.figures().debt_chunks == 1);
  third.let_go();
  pool.live(3s);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  const auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 2);
  CHECK((copies[0].benefactor == other || copies[1].benefactor == other));
  CHECK(pool.broken().empty());
}

TEST_CASE("a copy beside another on its host goes when there are enough without it") {
  TestPool pool(2, {"x", "x", "y"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 2);
  // Adds a third copy, as a client does that stores a chunk whose copies are silent.
  const ChunkIndex index = pool.chunk_of(*file);
  const Chunk chunk = pool.service->state().chunks().get(index);
  BenefactorId third;
  for (const auto& each : pool.benefactors) {
    if (each->id != copies[0].benefactor && each->id != copies[1].benefactor) third = each->id;
  }
  const std::uint64_t bytes = extent_bytes(chunk.length);
  const std::uint64_t free_before = pool.service->pool().space().free_bytes(third);
  const auto range = pool.service->pool().space().take(third, bytes, bytes);
  REQUIRE(range);
  const Extent added{third, range->offset};
  pool.service->pool().execute(ChangeCopies{{{copies[0], chunk.name, chunk.length, added, {}}}},
                               [](const Result<manager::Affected>&) {});
  REQUIRE(pool.copies_of(*file).size() == 3);
  pool.service->planners().copies.examine(index);
  pool.live(2s);
  copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 2);
  CHECK(pool.of(copies[0].benefactor).host != pool.of(copies[1].benefactor).host);
  CHECK((pool.service->pool().space().free_bytes(third) == free_before || copies[1] == added));
  CHECK(pool.broken().empty());
}

TEST_CASE("more copies than benefactors stay a debt, and a close that waits for them is told so") {
  TestPool pool(3, {"x", "y"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  CHECK(pool.copies_of(*file).size() == 2);
  const auto debt = pool.client->call(msg::GetDebt{*file, 1});
  REQUIRE(debt);
  CHECK(debt->chunks == 1);
  CHECK(debt->impossible);
}

TEST_CASE("a close that waits for copies is told when there is nothing left to copy") {
  TestPool pool(2, {"x", "y", "z"});
  for (auto& each : pool.benefactors) each->hold_back = true;
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  const auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 1);
  CHECK(pool.client->call(msg::GetDebt{*file, 1})->bytes == kChunk);
  pool.kill(copies[0].benefactor);
  pool.live(1s);
  // A silent benefactor is not lost yet: it may come back.
  CHECK(pool.client->call(msg::GetDebt{*file, 1})->bytes == kChunk);
  pool.live(15s);
  const auto debt = pool.client->call(msg::GetDebt{*file, 1});
  REQUIRE_FALSE(debt);
  CHECK(debt.error().code == Code::kDataLost);
}

TEST_CASE("a close that waits for copies is not told of one that a crash would take back") {
  TestPool pool(2, {"x", "y"});
  for (auto& each : pool.benefactors) each->hold_back = true;
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.pass(1s);
  pool.journal.set_automatic(false);
  for (auto& each : pool.benefactors) each->let_go();
  REQUIRE(pool.copies_of(*file).size() == 2);
  std::optional<rpc::Answer> answer;
  pool.client->peer().call(msg::GetDebt{*file, 1}, limits::kCallDeadline,
                           [&](rpc::Answer got) { answer = std::move(got); });
  pool.turn();
  CHECK_FALSE(answer);
  pool.journal.sync();
  pool.turn();
  REQUIRE(answer);
  REQUIRE(*answer);
  CHECK(std::get<msg::GetDebt::Reply>(**answer).chunks == 0);
  pool.restart();
  CHECK(pool.copies_of(*file).size() == 2);
}

TEST_CASE("a wrong copy is found by the scrub and made again from another one") {
  TestPool pool(2, {"x", "y"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  const auto before = pool.copies_of(*file);
  REQUIRE(before.size() == 2);
  pool.of(before[0].benefactor).wrong = {before[0].offset};
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(4s);
  const auto scrubbed = pool.client->call(msg::Scrub{});
  REQUIRE(scrubbed);
  CHECK(scrubbed->passes == 1);
  CHECK(scrubbed->wrong_chunks == 1);
  CHECK(scrubbed->repaired_chunks == 1);
  CHECK(scrubbed->checked_bytes >= 2 * kChunk);
  const auto after = pool.copies_of(*file);
  REQUIRE(after.size() == 2);
  CHECK(std::find(after.begin(), after.end(), before[0]) == after.end());
  // Once known, the wrong copy was never given to a reader.
  const auto map = pool.client->call(msg::GetMap{pool.client->id, *file});
  REQUIRE(map);
  CHECK(map->page.chunks[0].copies.size() == 2);
  CHECK(pool.broken().empty());
}

TEST_CASE("a scrub ends though a link is lost while more is to be checked there") {
  TestPool pool(1, {"x"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  TestBenefactor& only = *pool.benefactors.front();
  only.hold_back = true;
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(2s);
  REQUIRE(only.held.size() == 1);
  const Extent copy = pool.copies_of(*file).front();
  REQUIRE(pool.client->call(msg::ReportWrongCopy{pool.client->id, *file, 1, copy}));
  // The lost link ends the first check; the planner sends its next request to a lost link.
  only.disconnect();
  only.let_go();
  only.connect();
  only.register_now();
  pool.live(3s);
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(3s);
  const auto scrubbed = pool.client->call(msg::Scrub{});
  REQUIRE(scrubbed);
  CHECK_FALSE(scrubbed->running);
  CHECK(scrubbed->passes == 2);
}

TEST_CASE("a scrub ends though two links are lost at once while more is to be checked there") {
  TestPool pool(2, {"x", "y"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  const auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 2);
  for (const auto& each : pool.benefactors) each->hold_back = true;
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(2s);
  for (const Extent& copy : copies) {
    REQUIRE(pool.client->call(msg::ReportWrongCopy{pool.client->id, *file, 1, copy}));
  }
  // The lost link ends the first check; the planner sends its next request to a lost link.
  for (const auto& each : pool.benefactors) each->lose_link();
  pool.turn();
  for (const auto& each : pool.benefactors) {
    each->let_go();
    each->connect();
    each->register_now();
  }
  pool.live(3s);
  const auto scrubbed = pool.client->call(msg::Scrub{});
  REQUIRE(scrubbed);
  CHECK_FALSE(scrubbed->running);
}

TEST_CASE("who wants to leave hands over what only it has, and may go then") {
  TestPool pool(1, {"x", "y"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  const BenefactorId from = pool.copies_of(*file)[0].benefactor;
  TestBenefactor& leaving = pool.of(from);
  const auto first = leaving.call(msg::BenefactorHeartbeat{from, true});
  REQUIRE(first);
  CHECK_FALSE(first->may_go);
  pool.live(2s);
  const auto next = leaving.call(msg::BenefactorHeartbeat{from, true});
  REQUIRE(next);
  CHECK(next->may_go);
  CHECK(pool.copies_of(*file)[0].benefactor != from);
  // A leaving benefactor gets no new chunks.
  for (std::uint64_t name = 20; name < 24; ++name) {
    const auto other = pool.client->write("n" + std::to_string(name), kChunk, name);
    REQUIRE(other);
    CHECK(pool.copies_of(*other)[0].benefactor != from);
  }
  CHECK(pool.broken().empty());
}

TEST_CASE("who wants to leave hands over what beside it only a silent one has") {
  TestPool pool(2, {"x", "y", "z"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(2s);
  const auto copies = pool.copies_of(*file);
  REQUIRE(copies.size() == 2);
  const BenefactorId from = copies[1].benefactor;
  // The third benefactor does not answer yet.
  for (auto& each : pool.benefactors) each->hold_back = each->id != from;
  pool.kill(copies[0].benefactor);
  TestBenefactor& leaving = pool.of(from);
  REQUIRE(leaving.call(msg::BenefactorHeartbeat{from, true}));
  pool.live(2s);
  const auto early = leaving.call(msg::BenefactorHeartbeat{from, true});
  REQUIRE(early);
  CHECK_FALSE(early->may_go);
  for (auto& each : pool.benefactors) {
    if (each->peer_lives()) each->let_go();
  }
  pool.live(5s);
  const auto later = leaving.call(msg::BenefactorHeartbeat{from, true});
  REQUIRE(later);
  CHECK(later->may_go);
  CHECK(std::ranges::any_of(pool.copies_of(*file), [&](const Extent& copy) {
    return copy.benefactor != from && copy.benefactor != copies[0].benefactor;
  }));
  CHECK(pool.broken().empty());
}

TEST_CASE("who is the last may go at once") {
  TestPool pool(1, {"x"});
  REQUIRE(pool.client->write("a", kChunk, 7));
  pool.live(1s);
  TestBenefactor& last = *pool.benefactors[0];
  REQUIRE(last.call(msg::BenefactorHeartbeat{last.id, true}));
  pool.live(1s);
  const auto answer = last.call(msg::BenefactorHeartbeat{last.id, true});
  REQUIRE(answer);
  CHECK(answer->may_go);
}

TEST_CASE("the space of a copy without an answer comes back when its benefactor answers again") {
  TestPool pool(2, {"x", "y"});
  for (auto& each : pool.benefactors) each->hold_back = true;
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  pool.live(35s);
  for (auto& each : pool.benefactors) {
    each->held.clear();
    each->held_requests.clear();
    each->hold_back = false;
  }
  pool.live(10s);
  CHECK(pool.copies_of(*file).size() == 2);
  CHECK(pool.broken().empty());
  REQUIRE(pool.client->call(msg::Remove{pool.client->id, kRootFile, "a"}));
  pool.live(3s);
  for (auto& each : pool.benefactors) {
    CHECK(pool.service->pool().space().free_bytes(each->id) == kArena);
  }
}

TEST_CASE("the copies of what one benefactor has are on few others") {
  TestPool pool(2, {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"});
  std::map<BenefactorId, std::set<BenefactorId>> sets;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const auto file = pool.client->write("f" + std::to_string(i), 1000, i);
    REQUIRE(file);
    pool.pass(100ms);
    const auto copies = pool.copies_of(*file);
    REQUIRE(copies.size() == 2);
    sets[copies[0].benefactor].insert(copies[1].benefactor);
    if (i % 10 == 0) pool.live(1s);
  }
  for (const auto& [primary, others] : sets) CHECK(others.size() <= kCopyScatter);
}

TEST_CASE("the audit sees a leak and a range that two have; gc gives the leak back") {
  TestPool pool(1, {"x"});
  const auto file = pool.client->write("a", kChunk, 7);
  REQUIRE(file);
  const BenefactorId id = pool.benefactors[0]->id;
  CHECK(pool.broken().empty());
  const auto leak = pool.service->pool().space().take(id, 4096, 4096);
  REQUIRE(leak);
  const auto plan = pool.client->call(msg::CollectGarbage{false});
  REQUIRE(plan);
  REQUIRE(plan->leaked.size() == 1);
  CHECK(plan->leaked[0] == msg::CollectGarbage::Range{id, leak->offset, 4096});
  CHECK(pool.client->call(msg::CheckMetadata{})->broken_count == 1);
  REQUIRE(pool.client->call(msg::CollectGarbage{true}));
  const auto after = pool.client->call(msg::CollectGarbage{false});
  REQUIRE(after);
  CHECK(after->leaked_bytes == 0);
  CHECK(after->free_bytes + after->used_bytes == kArena);
  const Extent used = pool.copies_of(*file)[0];
  pool.service->pool().space().release(id, {used.offset, 64});
  CHECK(pool.client->call(msg::CheckMetadata{})->broken_count == 1);
}
