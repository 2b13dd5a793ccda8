#include "manager/replication/parity_planner.h"

#include <algorithm>

#include "manager/arenas/audit.h"
#include "manager/replication/copy_planner.h"
#include "tests/support/captured_log.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using stdchk::test::CapturedLog;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;
constexpr std::uint32_t kChunk = 100000;

std::vector<std::string> names_of_hosts(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("host" + std::to_string(i));
  return names;
}

/// Benefactors on separate hosts, and images that want parity.
struct TestPool : HostsPool {
  explicit TestPool(const std::string& redundancy, std::size_t hosts = 8)
      : TestPool(redundancy, names_of_hosts(hosts)) {}
  TestPool(const std::string& redundancy, const std::vector<std::string>& hosts)
      : HostsPool(parse_redundancy(redundancy)->number(), hosts, kArena) {}
  /// Writes an image of `count` chunks, one on each grant from `first_grant` on.
  FileId write(const std::string& name, std::size_t count, std::uint64_t first_name,
               std::uint32_t length = kChunk, std::size_t first_grant = 0) {
    const auto opened = client->create(name);
    REQUIRE(opened);
    const auto placed = client->call(msg::Place{opened->session,
                                                {},
                                                8 * extent_bytes(length),
                                                {},
                                                {},
                                                static_cast<std::uint32_t>(extent_bytes(length))});
    REQUIRE(placed);
    msg::Commit commit;
    commit.session = opened->session;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Grant& grant = placed->grants.at((first_grant + i) % placed->grants.size());
      Chunk chunk;
      const std::uint64_t number = first_name == 0 ? 0 : first_name + i;
      __builtin_memcpy(chunk.name.bytes.data(), &number, sizeof(number));
      chunk.length = length - i;
      chunk.copies = {{grant.benefactor, grant.offset}};
      commit.written.chunks.push_back(chunk);
      commit.written.slices.push_back({std::uint64_t{i} * length, chunk.length, 0, i});
    }
    commit.end = true;
    REQUIRE(client->call(commit));
    return opened->attributes.id;
  }
  void remove(const std::string& name) {
    REQUIRE(client->call(msg::Remove{client->id, kRootFile, name}));
  }
  const Stripe* stripe_of(FileId file, std::size_t slice = 0) const {
    return service->state().stripes().of(chunk_of(file, slice));
  }
  std::vector<Extent> places_of(const Stripe& stripe) const {
    std::vector<Extent> out;
    for (const ChunkIndex member : stripe.members) {
      for (const Extent& copy : service->state().chunks().get(member).copies) out.push_back(copy);
    }
    return out;
  }
  std::set<BenefactorId> benefactors_of(const Stripe& stripe) const {
    std::set<BenefactorId> out;
    for (const Extent& place : places_of(stripe)) out.insert(place.benefactor);
    return out;
  }
  std::uint64_t free_bytes() const {
    std::uint64_t out = 0;
    for (const auto& each : benefactors) out += service->pool().space().free_bytes(each->id);
    return out;
  }
  /// Fills the arena except `ranges` ranges that fit a block of kChunk bytes, and shorter ones.
  void leave_free(BenefactorId id, std::size_t ranges) {
    constexpr std::uint64_t kApart = limits::kExtentAlignment;
    const std::uint64_t block = extent_bytes(kChunk);
    const std::uint64_t shorter = extent_bytes(kChunk / 2);
    Space& space = service->pool().space();
    Range whole{0, space.largest(id)};
    while (const auto taken = space.take(id, space.largest(id), limits::kExtentAlignment)) {
      if (taken->length == whole.length) whole = *taken;
    }
    for (std::uint64_t at = whole.offset; at + block < whole.end();) {
      const std::uint64_t length = ranges > 0 ? block : shorter;
      if (ranges > 0) --ranges;
      space.release(id, {at, length});
      at += length + kApart;
    }
  }
  std::size_t debt() const { return service->planners().copies.figures().debt_chunks; }
};

}  // namespace

TEST_CASE("chunks of an image become a stripe whose blocks are all on different hosts") {
  TestPool pool("ec(4,2)");
  const FileId file = pool.write("a", 4, 7);
  CHECK(pool.debt() == 4);
  CHECK(pool.service->planners().parity.lacks_parity());
  const auto debt = pool.client->call(msg::GetDebt{file, 1});
  REQUIRE(debt);
  CHECK(debt->bytes >= 4 * (kChunk - 3) / 2);
  CHECK_FALSE(debt->impossible);
  pool.live(3s);
  const Stripe* const stripe = pool.stripe_of(file);
  REQUIRE(stripe != nullptr);
  CHECK(stripe->data == 4);
  CHECK(stripe->parity() == 2);
  CHECK(pool.benefactors_of(*stripe).size() == 6);
  CHECK(pool.debt() == 0);
  CHECK_FALSE(pool.service->planners().parity.lacks_parity());
  const auto at_risk = [&] { return pool.client->call(msg::StatPool{})->totals.at_risk_ns; };
  const std::uint64_t until_now = at_risk();
  pool.live(2s);
  CHECK(at_risk() == until_now);
  CHECK(pool.client->call(msg::GetDebt{file, 1})->bytes == 0);
  CHECK(pool.broken().empty());
  const auto stat = pool.client->call(msg::StatPool{});
  REQUIRE(stat);
  CHECK(stat->stripes == 1);
  CHECK(stat->parity_bytes == 2 * kChunk);
  const auto places = pool.places_of(*stripe);
  pool.restart();
  REQUIRE(pool.stripe_of(file) != nullptr);
  CHECK(pool.places_of(*pool.stripe_of(file)) == places);
}

TEST_CASE("stripes of chunks without names survive a snapshot") {
  TestPool pool("ec(4,1)");
  const FileId file = pool.write("a", 4, 0);
  pool.live(3s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  const auto places = pool.places_of(*pool.stripe_of(file));
  State again;
  pool.service->state().snapshot([&](const Command& command) { REQUIRE(again.apply(command)); });
  const Stripe* const stripe = again.stripes().of(again.file(file)->newest.slices.at(0).chunk);
  REQUIRE(stripe != nullptr);
  std::vector<Extent> restored;
  for (const ChunkIndex member : stripe->members) {
    for (const Extent& copy : again.chunks().get(member).copies) restored.push_back(copy);
  }
  CHECK(restored == places);
}

TEST_CASE("fewer chunks than the policy says are a shorter stripe") {
  TestPool pool("ec(8,1)");
  const FileId file = pool.write("a", 1, 7);
  pool.live(2s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  CHECK(pool.stripe_of(file)->data == 1);
  CHECK(pool.debt() == 0);
}

TEST_CASE("a pool with too few hosts makes stripes as long as it can, and none without a second") {
  TestPool pool("ec(4,2)", 4);
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  CHECK(pool.stripe_of(file)->data == 2);
  CHECK(pool.benefactors_of(*pool.stripe_of(file)).size() == 4);
  CHECK(pool.broken().empty());
  TestPool alone("ec(4,1)", 1);
  const FileId other = alone.write("a", 1, 7);
  alone.live(2s);
  CHECK(alone.stripe_of(other) == nullptr);
  CHECK(alone.debt() == 1);
  CHECK(alone.client->call(msg::GetDebt{other, 1})->impossible);
}

TEST_CASE("parity is made where there is room for all of its blocks") {
  TestPool pool("ec(2,2)", 3);
  const FileId file = pool.write("a", 1, 7);
  const auto& chunks = pool.service->state().chunks();
  const BenefactorId data = chunks.get(pool.chunk_of(file)).copies.front().benefactor;
  std::size_t ranges = 0;  // 1 on the first benefactor, 2 on the second
  for (const auto& each : pool.benefactors) {
    if (each->id != data) pool.leave_free(each->id, ++ranges);
  }
  pool.live(2s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  CHECK(pool.benefactors_of(*pool.stripe_of(file)).size() == 3);
  CHECK(pool.debt() == 0);
}

TEST_CASE("stripes are shorter when only those with the chunks have room for parity") {
  TestPool pool("ec(2,2)", 4);
  const FileId file = pool.write("a", 2, 7);
  const auto& chunks = pool.service->state().chunks();
  std::set<BenefactorId> data;
  for (const std::size_t slice : {0U, 1U}) {
    data.insert(chunks.get(pool.chunk_of(file, slice)).copies.front().benefactor);
  }
  REQUIRE(data.size() == 2);
  for (const auto& each : pool.benefactors) {
    if (data.count(each->id) == 0) pool.leave_free(each->id, 0);
  }
  pool.live(2s);
  for (const std::size_t slice : {0U, 1U}) {
    REQUIRE(pool.stripe_of(file, slice) != nullptr);
    CHECK(pool.stripe_of(file, slice)->data == 1);
    CHECK(pool.benefactors_of(*pool.stripe_of(file, slice)) == data);
  }
}

TEST_CASE("a chunk without room for its parity does not keep others from getting theirs") {
  TestPool pool("ec(2,2)", 3);
  const FileId longer = pool.write("a", 2, 7);
  const FileId shorter = pool.write("b", 3, 20, kChunk / 3);
  for (const auto& each : pool.benefactors) pool.leave_free(each->id, 0);
  pool.live(5s);
  CHECK(pool.stripe_of(longer, 0) == nullptr);
  CHECK(pool.stripe_of(longer, 1) == nullptr);
  for (const std::size_t slice : {0U, 1U, 2U}) {
    REQUIRE(pool.stripe_of(shorter, slice) != nullptr);
    CHECK(pool.benefactors_of(*pool.stripe_of(shorter, slice)).size() == 3);
  }
}

TEST_CASE("what went with a benefactor is made again from the rest of its stripes") {
  TestPool pool("ec(4,2)");
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  const Stripe before = *pool.stripe_of(file);
  const auto places = pool.places_of(before);
  // Both a data chunk and a parity block are lost.
  pool.of(places[1].benefactor).disconnect();
  pool.of(places[5].benefactor).disconnect();
  const auto answer = pool.client->call(msg::GetStripe{
      pool.client->id, places[1], pool.service->state().chunks().get(before.members[1]).name,
      pool.service->state().chunks().length(before.members[1])});
  REQUIRE(answer);
  CHECK(answer->data == 4);
  CHECK(answer->number == 1);
  CHECK(answer->blocks.size() == 4);
  pool.live(16s);
  const auto after = pool.places_of(*pool.stripe_of(file));
  REQUIRE(after.size() == 6);
  CHECK(after[0] == places[0]);
  CHECK(after[1] != places[1]);
  CHECK(after[5] != places[5]);
  CHECK(pool.benefactors_of(*pool.stripe_of(file)).size() == 6);
  CHECK(pool.service->planners().copies.figures().rebuilt == 2);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  CHECK(pool.debt() == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("a stripe stays while it alone can make a chunk again, however thin it is") {
  TestPool pool("ec(4,1)");
  pool.write("a", 4, 7);
  pool.live(3s);
  // The last two chunks of image b.
  const FileId b = pool.write("b", 2, 9, kChunk - 2);
  REQUIRE(pool.stripe_of(b) != nullptr);
  REQUIRE(pool.stripe_of(b)->members.size() == 5);
  pool.of(pool.copies_of(b)[0].benefactor).disconnect();
  pool.remove("a");
  pool.live(16s);
  CHECK(pool.service->planners().copies.figures().rebuilt == 1);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  REQUIRE(pool.stripe_of(b) != nullptr);
  CHECK(pool.stripe_of(b)->data == 2);
  CHECK(pool.debt() == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("more losses than parity are told as lost, and the rest is protected anew") {
  TestPool pool("ec(4,1)");
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  const Stripe before = *pool.stripe_of(file);
  const auto places = pool.places_of(before);
  pool.of(places[0].benefactor).disconnect();
  pool.of(places[1].benefactor).disconnect();
  pool.live(16s);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 2);
  const StripeTable& stripes = pool.service->state().stripes();
  CHECK(stripes.of(before.members[0]) == nullptr);
  REQUIRE(stripes.of(before.members[2]) != nullptr);
  CHECK(stripes.of(before.members[2])->data == 2);
  CHECK(pool.debt() == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("a wrong chunk that the scrub finds is made again from its stripe") {
  TestPool pool("ec(4,1)");
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  const auto places = pool.places_of(*pool.stripe_of(file));
  pool.of(places[2].benefactor).wrong = {places[2].offset};
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(5s);
  const auto scrubbed = pool.client->call(msg::Scrub{});
  REQUIRE(scrubbed);
  CHECK(scrubbed->wrong_chunks == 1);
  CHECK(scrubbed->repaired_chunks == 1);
  CHECK(pool.places_of(*pool.stripe_of(file))[2] != places[2]);
  CHECK(pool.broken().empty());
}

TEST_CASE("a removed chunk stays while others of its stripe need it, and goes with the last") {
  TestPool pool("ec(4,1)");
  const std::uint64_t all = pool.free_bytes();
  // Two images share a stripe: two chunks each, committed together.
  const FileId a = pool.write("a", 2, 7);
  const FileId b = pool.write("b", 3, 20);
  pool.live(3s);
  REQUIRE(pool.stripe_of(a) != nullptr);
  REQUIRE(pool.stripe_of(b) != nullptr);
  CHECK(pool.broken().empty());
  pool.remove("a");
  CHECK(pool.broken().empty());
  pool.live(3s);
  // The remaining stripes still protect the remaining chunks.
  REQUIRE(pool.stripe_of(b) != nullptr);
  CHECK(pool.debt() == 0);
  const auto places = pool.places_of(*pool.stripe_of(b));
  pool.of(places[0].benefactor).disconnect();
  pool.live(16s);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  CHECK(pool.broken().empty());
  pool.remove("b");
  pool.live(3s);
  CHECK(pool.service->state().stripes().size() == 0);
  CHECK(pool.service->state().chunks().chunk_count() == 0);
  CHECK(pool.free_bytes() == all);
}

TEST_CASE("a removed chunk that a stripe needs survives a snapshot") {
  for (const std::uint64_t names : {0ULL, 50ULL}) {
    TestPool pool("ec(4,1)", 5);
    pool.write("a", 1, names, kChunk, 3);
    const FileId b = pool.write("b", 3, names == 0 ? 0 : 60);
    pool.live(2s);
    const Stripe* const stripe = pool.stripe_of(b);
    REQUIRE(stripe != nullptr);
    REQUIRE(stripe->data == 4);
    const auto places = pool.places_of(*stripe);
    pool.remove("a");
    pool.turn();
    REQUIRE(pool.stripe_of(b) != nullptr);
    CHECK(pool.places_of(*pool.stripe_of(b)) == places);
    State again;
    pool.service->state().snapshot([&](const Command& command) { REQUIRE(again.apply(command)); });
    const ChunkIndex chunk = again.file(b)->newest.slices.at(0).chunk;
    REQUIRE(again.stripes().of(chunk) != nullptr);
    CHECK(again.stripes().of(chunk)->members.size() == 5);
    CHECK(again.chunks().chunk_count() == 5);
    pool.restart();
    REQUIRE(pool.stripe_of(b) != nullptr);
    CHECK(pool.places_of(*pool.stripe_of(b)) == places);
  }
}

TEST_CASE("parity that was not proven does not count, and its space comes back") {
  TestPool pool("ec(4,1)");
  for (auto& each : pool.benefactors) each->copies_fail = true;
  const std::uint64_t all = pool.free_bytes();
  const FileId file = pool.write("a", 4, 7);
  pool.live(5s);
  CHECK(pool.stripe_of(file) == nullptr);
  CHECK(pool.debt() == 4);
  CHECK(pool.broken().empty());
  pool.remove("a");
  pool.live(2s);
  CHECK(pool.free_bytes() == all);
}

TEST_CASE("a benefactor that does not answer for parity keeps its space until it does") {
  TestPool pool("ec(4,1)");
  for (auto& each : pool.benefactors) each->hold_back = true;
  const std::uint64_t all = pool.free_bytes();
  const FileId file = pool.write("a", 4, 7);
  pool.live(35s);
  CHECK(pool.broken().empty());
  for (auto& each : pool.benefactors) {
    each->held.clear();
    each->held_requests.clear();
    each->hold_back = false;
  }
  pool.live(10s);
  CHECK(pool.stripe_of(file) != nullptr);
  pool.remove("a");
  pool.live(3s);
  CHECK(pool.free_bytes() == all);
  CHECK(pool.broken().empty());
}

TEST_CASE("drained chunks get no parity, and their stripes are given up together") {
  TestPool pool("ec(4,1)");
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  auto& state = const_cast<State&>(pool.service->state());
  CHECK_FALSE(state.apply(Evict{file, 1, {0}}));
  REQUIRE(state.apply(Drained{file, 1}));
  REQUIRE(state.apply(Evict{file, 1, {0}}));
  CHECK(state.stripes().size() == 0);
  pool.live(2s);
  CHECK(state.stripes().size() == 0);
  CHECK(pool.debt() == 0);
}

TEST_CASE("who leaves hands its blocks over to hosts that have none of the stripe") {
  TestPool pool("ec(4,2)");
  const FileId file = pool.write("a", 4, 7);
  pool.live(3s);
  const BenefactorId from = pool.places_of(*pool.stripe_of(file))[0].benefactor;
  REQUIRE(pool.of(from).call(msg::BenefactorHeartbeat{from, true}));
  pool.live(3s);
  const auto next = pool.of(from).call(msg::BenefactorHeartbeat{from, true});
  REQUIRE(next);
  CHECK(next->may_go);
  CHECK(pool.benefactors_of(*pool.stripe_of(file)).count(from) == 0);
  CHECK(pool.benefactors_of(*pool.stripe_of(file)).size() == 6);
  CHECK(pool.broken().empty());
}

TEST_CASE("stripes use few sets of benefactors") {
  TestPool pool("ec(3,1)", 12);
  std::set<std::set<BenefactorId>> sets;
  for (std::uint64_t i = 1; i <= 60; ++i) {
    const FileId file = pool.write("f" + std::to_string(i), 3, i * 10, 3000);
    pool.live(1s);
    REQUIRE(pool.stripe_of(file) != nullptr);
    sets.insert(pool.benefactors_of(*pool.stripe_of(file)));
  }
  // There are 495 sets of four among twelve. Used are one for each group of neighbours, and parts
  // of these for incomplete stripes.
  CHECK(sets.size() <= 24);
}

TEST_CASE(
    "after a restart nothing is lost before its benefactors may be gone, then it is told once") {
  TestPool pool("ec(2,1)", {"a", "a", "b", "b", "c", "c"});
  const FileId file = pool.write("image", 2, 7);
  pool.live(3s);
  REQUIRE(pool.stripe_of(file) != nullptr);
  std::set<BenefactorId> members;
  for (const Extent& place : pool.places_of(*pool.stripe_of(file)))
    members.insert(place.benefactor);
  REQUIRE(members.size() == 3);
  const CapturedLog log;
  pool.restart();
  // The benefactors without blocks of the stripe come back first. Each host has one benefactor.
  for (const auto& each : pool.benefactors) {
    each->disconnect();
    if (members.count(each->id) > 0) continue;
    each->connect();
    each->register_now();
  }
  pool.client = std::make_unique<TestClient>(pool, "again");
  const bool comes_back = GENERATE(true, false);
  for (int second = 0; second < 6; ++second) {
    pool.live(1s);
    CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
    CHECK_FALSE(pool.service->planners().copies.has_lost(pool.service->state().file(file)->newest));
    CHECK(log.count("have no copy any more") == 0);
  }
  for (const auto& each : pool.benefactors) {
    if (!comes_back || members.count(each->id) == 0) continue;
    each->connect();
    each->register_now();
  }
  pool.live(16s);
  CHECK(pool.service->planners().copies.figures().lost_chunks == (comes_back ? 0 : 2));
  CHECK(log.count("image image: ") == (comes_back ? 0 : 1));
}
