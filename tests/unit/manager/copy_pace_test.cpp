#include <algorithm>
#include <map>
#include <set>

#include "core/chunk/extent_header.h"
#include "manager/arenas/scrubber.h"
#include "manager/replication/copy_planner.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 128 * limits::kMiB;
constexpr std::uint32_t kChunk = limits::kMiB - 64;  // with its header, 1 MiB

Config with_rates(std::uint64_t copy_rate, std::uint64_t scrub_rate = 0) {
  Config config;
  config.copy_rate_bytes_per_s = copy_rate;
  config.scrub_rate_bytes_per_s = scrub_rate;
  return config;
}

struct TestPool : HostsPool {
  TestPool(const std::string& redundancy, const std::vector<std::string>& hosts,
           Config settings = {})
      : HostsPool(parse_redundancy(redundancy)->number(), hosts, kArena, std::move(settings)) {}
  std::vector<FileId> write(std::size_t count) { return write_images(count, kChunk); }
  std::size_t debt() const { return service->planners().copies.figures().debt_chunks; }
  /// Fills the benefactor, so that it gets no copies.
  void fill(BenefactorId id) {
    while (const std::uint64_t bytes = service->pool().space().largest(id)) {
      filled.emplace_back(id, *service->pool().space().take(id, bytes, bytes));
    }
  }
  void empty() {
    for (const auto& [id, range] : filled) service->pool().space().release(id, range);
    filled.clear();
  }

  std::vector<std::pair<BenefactorId, Range>> filled;
};

std::uint64_t copied_bytes(const std::vector<msg::Request>& requests) {
  std::uint64_t bytes = 0;
  for (const msg::Request& request : requests) {
    if (const auto* copies = std::get_if<msg::CopyExtents>(&request)) {
      for (const auto& copy : copies->copies) bytes += copy.length;
    }
  }
  return bytes;
}

std::uint64_t checked_bytes(const std::vector<msg::Request>& requests) {
  std::uint64_t bytes = 0;
  for (const msg::Request& request : requests) {
    if (const auto* checks = std::get_if<msg::CheckExtents>(&request)) {
      for (const auto& checked : checks->extents) bytes += checked.length;
    }
  }
  return bytes;
}

/// Lets time pass until `bytes()` reaches `all`, and checks often that the rate is kept. Returns
/// the seconds needed.
template <class Bytes>
double seconds_at_rate(TestPool& pool, std::uint64_t rate, std::uint64_t all, Bytes bytes) {
  const Time began = pool.clock.now();
  while (bytes() < all) {
    for (const auto& each : pool.benefactors) each->beat();
    REQUIRE(pool.client->call(msg::ClientHeartbeat{pool.client->id}));
    for (int i = 0; i < 20 && bytes() < all; ++i) {
      const double passed = std::chrono::duration<double>(pool.clock.now() - began).count();
      const double allowed = static_cast<double>(rate) * (passed + 0.5);
      CHECK(static_cast<double>(bytes()) <= allowed + 2 * kChunk);
      pool.clock.advance(50ms);
      pool.turn();
    }
    REQUIRE(pool.clock.now() - began < 1min);
  }
  return std::chrono::duration<double>(pool.clock.now() - began).count();
}

}  // namespace

TEST_CASE("each benefactor copies at the rate that is set, and hardly slower") {
  for (const std::uint64_t rate : {4 * limits::kMiB, 32 * limits::kMiB}) {
    INFO(rate);
    TestPool pool("2", {"x"}, with_rates(rate));
    pool.write(100);
    TestBenefactor& target = pool.add("y");
    const double seconds = seconds_at_rate(pool, rate, std::uint64_t{100} * kChunk,
                                           [&] { return copied_bytes(target.served); });
    CHECK(seconds <= 1.2 * 100 * limits::kMiB / static_cast<double>(rate) + 0.5);
    pool.live(1s);
    CHECK(pool.debt() == 0);
  }
}

TEST_CASE("parity is made at the rate that is set") {
  constexpr std::uint64_t kRate = 2 * limits::kMiB;
  TestPool pool("ec(2,1)", {"x"}, with_rates(kRate));
  pool.write(40);
  TestBenefactor& target = pool.add("y");
  const auto read_bytes = [&] {
    std::uint64_t bytes = 0;
    for (const auto& build : target.all<msg::BuildStripe>()) {
      for (const auto& input : build.inputs) bytes += input.length;
    }
    return bytes;
  };
  const double seconds = seconds_at_rate(pool, kRate, std::uint64_t{20} * kChunk, read_bytes);
  CHECK(seconds <= 13);
}

TEST_CASE("who leaves is not held up by the rate") {
  TestPool pool("1", {"x", "y"}, with_rates(64 * limits::kKiB));
  const auto files = pool.write(20);
  TestBenefactor& leaving = *pool.benefactors[0];
  REQUIRE(leaving.call(msg::BenefactorHeartbeat{leaving.id, true}));
  pool.live(3s);
  const auto answer = leaving.call(msg::BenefactorHeartbeat{leaving.id, true});
  REQUIRE(answer);
  CHECK(answer->may_go);
  for (const FileId file : files) CHECK(pool.copies_of(file)[0].benefactor != leaving.id);
}

TEST_CASE("while somebody writes, little is copied at a time") {
  TestPool pool("2", {"x"});
  pool.write(100);
  const auto writing = pool.client->create("open", limits::kMiB);
  REQUIRE(writing);
  REQUIRE(pool.client->call(msg::Place{writing->session, {}, kChunk, {}, {}}));
  REQUIRE(pool.service->sessions().writing());
  TestBenefactor& target = pool.add("y");
  target.hold_back = true;
  pool.live(2s);
  CHECK(copied_bytes(target.held_requests) > 2 * limits::kMiB);
  CHECK(copied_bytes(target.held_requests) <= 4 * limits::kMiB);
  REQUIRE(pool.client->call(msg::CloseSession{writing->session}));
  pool.live(2s);
  CHECK(copied_bytes(target.held_requests) > 16 * limits::kMiB);
  CHECK(copied_bytes(target.held_requests) <= 32 * limits::kMiB);
  target.let_go();
  pool.live(2s);
  CHECK(pool.debt() == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("copies leave a sixteenth of an arena to those who write") {
  TestPool pool("2", {"x"});
  pool.write(kArena / limits::kMiB - 1);
  const BenefactorId target = pool.add("y").id;
  pool.live(5s);
  CHECK(pool.service->pool().space().free_bytes(target) >= kArena / 16);
  CHECK(pool.service->pool().space().free_bytes(target) <= kArena / 16 + limits::kMiB);
  CHECK(pool.debt() == kArena / 16 / limits::kMiB - 1);
}

TEST_CASE("chunks with one copy left are copied before those with two") {
  TestPool pool("3", {"x", "y", "z", "u"}, with_rates(limits::kMiB));
  // The rate is so low that copies are made one at a time. The first copies precede the limit.
  const auto files = pool.write(40);
  pool.live(2min);
  REQUIRE(pool.debt() == 0);
  const BenefactorId first = pool.benefactors[0]->id;
  const BenefactorId second = pool.benefactors[1]->id;
  for (const BenefactorId id : {pool.benefactors[2]->id, pool.benefactors[3]->id}) pool.fill(id);
  std::set<ChunkName> with_one;
  std::set<ChunkName> with_two;
  for (const FileId file : files) {
    const auto copies = pool.copies_of(file);
    const auto lost = std::count_if(copies.begin(), copies.end(), [&](const Extent& copy) {
      return copy.benefactor == first || copy.benefactor == second;
    });
    REQUIRE(lost >= 1);
    (lost == 2 ? with_one : with_two)
        .insert(pool.service->state().chunks().get(pool.chunk_of(file)).name);
  }
  REQUIRE(with_one.size() >= 5);
  REQUIRE(with_two.size() >= 5);
  pool.of(first).disconnect();
  pool.of(second).disconnect();
  pool.live(12s);
  // All missing copies can go only to this benefactor.
  TestBenefactor& target = pool.add("w");
  pool.live(1min);
  std::vector<ChunkName> order;
  for (const auto& request : target.all<msg::CopyExtents>()) {
    for (const auto& copy : request.copies) order.push_back(copy.name);
  }
  REQUIRE(order.size() == files.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    CHECK((i < with_one.size() ? with_one : with_two).count(order[i]) == 1);
  }
  pool.empty();
  CHECK(pool.broken().empty());
}

TEST_CASE("stripes that can stand no further loss are made whole before those that can") {
  const std::vector<std::string> hosts{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  TestPool pool("ec(2,2)", hosts);
  pool.write(80);
  pool.live(5s);
  REQUIRE(pool.debt() == 0);
  const StripeTable& stripes = pool.service->state().stripes();
  // Finds two benefactors that share some stripes, and hold blocks of different ones.
  const auto holders = [&](const Stripe& stripe) {
    std::set<BenefactorId> out;
    for (const ChunkIndex member : stripe.members) {
      for (const Extent& copy : pool.service->state().chunks().get(member).copies) {
        out.insert(copy.benefactor);
      }
    }
    return out;
  };
  std::map<std::pair<BenefactorId, BenefactorId>, std::size_t> together;
  stripes.for_each([&](const Stripe& stripe) {
    const auto all = holders(stripe);
    for (const BenefactorId a : all) {
      for (const BenefactorId b : all) together[{a, b}] += a < b ? 1 : 0;
    }
  });
  const auto pair = std::max_element(together.begin(), together.end(), [](auto& a, auto& b) {
                      return a.second < b.second;
                    })->first;
  // lost members, with the number of blocks that their stripe has lost
  std::map<ChunkIndex, std::size_t> lost_of;
  std::size_t both = 0;
  stripes.for_each([&](const Stripe& stripe) {
    std::vector<ChunkIndex> lost;
    for (const ChunkIndex member : stripe.members) {
      const Extent copy = pool.service->state().chunks().get(member).copies.at(0);
      if (copy.benefactor == pair.first || copy.benefactor == pair.second) lost.push_back(member);
    }
    for (const ChunkIndex member : lost) lost_of[member] = lost.size();
    both += lost.size() == 2 ? 1 : 0;
  });
  REQUIRE(both >= 3);
  REQUIRE(lost_of.size() >= 2 * both + 3);
  for (const auto& each : pool.benefactors) {
    if (each->id != pair.first && each->id != pair.second) pool.fill(each->id);
  }
  pool.of(pair.first).disconnect();
  pool.of(pair.second).disconnect();
  pool.live(12s);
  REQUIRE(pool.debt() == lost_of.size());
  TestBenefactor& target = pool.add("w");
  pool.live(20s);
  // The target can take one block of each stripe. Stripes that lost two blocks come first.
  const auto built = target.all<msg::BuildStripe>();
  REQUIRE(built.size() == lost_of.size() - both);
  for (std::size_t i = 0; i < built.size(); ++i) {
    const BenefactorId source = built[i].sources[built[i].inputs[0].source].id;
    const Extent read{source, built[i].inputs[0].offset};
    std::size_t lost = 0;
    stripes.for_each([&](const Stripe& stripe) {
      std::size_t here = 0;
      bool reads = false;
      for (const ChunkIndex member : stripe.members) {
        const auto copies = pool.service->state().chunks().get(member).copies;
        reads |= std::find(copies.begin(), copies.end(), read) != copies.end();
        here += lost_of.count(member);
      }
      if (reads) lost = here;
    });
    CHECK(lost == (i < both ? 2 : 1));
  }
  pool.empty();
  CHECK(pool.broken().empty());
}

TEST_CASE("a scrub reads of each benefactor at the rate that is set, and hardly slower") {
  constexpr std::uint64_t kRate = 4 * limits::kMiB;
  TestPool pool("1", {"x"}, with_rates(0, kRate));
  pool.write(40);
  pool.live(1s);
  REQUIRE(pool.client->call(msg::Scrub{true}));
  const double seconds = seconds_at_rate(pool, kRate, std::uint64_t{40} * kChunk, [&] {
    return checked_bytes(pool.benefactors[0]->served);
  });
  CHECK(seconds >= 9);
  CHECK(seconds <= 13);
  pool.live(1s);
  const auto scrubbed = pool.client->call(msg::Scrub{});
  REQUIRE(scrubbed);
  CHECK_FALSE(scrubbed->running);
  CHECK(scrubbed->passes == 1);
  CHECK(scrubbed->rate_bytes_per_s == kRate);
}

TEST_CASE("a scrub comes an hour after the one before, and without a rate only when asked for") {
  for (const std::uint64_t rate : {std::uint64_t{0}, 32 * limits::kMiB}) {
    INFO(rate);
    TestPool pool("1", {"x"}, with_rates(0, rate));
    pool.write(2);
    const auto hours = [&](int count) {
      for (int i = 0; i < count * 3600; i += 4) {
        pool.benefactors[0]->beat();
        REQUIRE(pool.client->call(msg::ClientHeartbeat{pool.client->id}));
        pool.clock.advance(4s);
        pool.turn();
      }
      return pool.client->call(msg::Scrub{})->passes;
    };
    pool.live(30s);
    CHECK(pool.client->call(msg::Scrub{})->passes == 0);
    CHECK(hours(3) == (rate == 0 ? 0 : 2 + 1));
    REQUIRE(pool.client->call(msg::Scrub{true}));
    pool.live(3s);
    CHECK(pool.client->call(msg::Scrub{})->passes == (rate == 0 ? 1 : 4));
  }
}
