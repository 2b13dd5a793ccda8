#include <algorithm>
#include <set>

#include "core/policy/copy_scatter.h"
#include "core/policy/topology.h"
#include "manager/replication/copy_planner.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::uint32_t kChunk = 10000;

Config with_topology(const std::string& text) {
  Config config;
  config.topology = *Topology::parse(text);
  return config;
}

/// The hosts of a topology, a benefactor on each, and images of one chunk.
struct TestPool : HostsPool {
  TestPool(const std::string& redundancy, const std::vector<std::string>& hosts,
           const std::string& topology = {})
      : HostsPool(parse_redundancy(redundancy)->number(), hosts, kArena, with_topology(topology)) {}
  std::vector<FileId> write(std::size_t count) { return write_images(count, kChunk); }
  std::vector<BenefactorId> holders_of(FileId file) const {
    std::vector<BenefactorId> out;
    for (const Extent& copy : copies_of(file)) out.push_back(copy.benefactor);
    return out;
  }
  /// The benefactors of all blocks of the chunk's stripe.
  std::vector<BenefactorId> stripe_of(FileId file) const {
    std::vector<BenefactorId> out;
    const Stripe* const stripe = service->state().stripes().of(chunk_of(file));
    REQUIRE(stripe != nullptr);
    for (const ChunkIndex member : stripe->members) {
      for (const Extent& copy : service->state().chunks().get(member).copies) {
        out.push_back(copy.benefactor);
      }
    }
    return out;
  }
  Topology::Place place_of(BenefactorId id) {
    const Topology::Place* const place = config.topology.find(of(id).host);
    return place == nullptr ? Topology::Place{} : *place;
  }
  std::size_t hosts_of(const std::vector<BenefactorId>& holders) {
    std::set<std::string> out;
    for (const BenefactorId id : holders) out.insert(of(id).host);
    return out.size();
  }
  /// The number of different nodes, racks or switches among `holders`.
  std::size_t count(const std::vector<BenefactorId>& holders, std::string Topology::Place::*level) {
    std::set<std::string> out;
    for (const BenefactorId id : holders) out.insert(place_of(id).*level);
    return out.size();
  }
  void kill_rack(const std::string& rack) {
    for (const auto& each : benefactors) {
      if (place_of(each->id).rack == rack) each->disconnect();
    }
  }
  /// Checks that each file has three copies, in `places` different nodes, racks or switches.
  void check_threes(const std::vector<FileId>& files, std::string Topology::Place::*level,
                    std::size_t places) {
    for (const FileId file : files) {
      REQUIRE(holders_of(file).size() == 3);
      CHECK(count(holders_of(file), level) == places);
    }
  }
  /// Checks that each file has three copies, all on different hosts.
  void check_hosts(const std::vector<FileId>& files) {
    for (const FileId file : files) {
      REQUIRE(holders_of(file).size() == 3);
      CHECK(hosts_of(holders_of(file)) == 3);
    }
  }
};

/// Hosts "h0", "h1" and so on: `in_rack` hosts in each rack, and `racks` racks behind each switch.
struct Room {
  Room(std::size_t switches, std::size_t racks, std::size_t in_rack) {
    for (std::size_t i = 0; i < switches * racks * in_rack; ++i) {
      const std::size_t rack = i / in_rack;
      hosts.push_back("h" + std::to_string(i));
      topology += hosts.back() + " rack=r" + std::to_string(rack) + " switch=s" +
                  std::to_string(rack / racks) + "\n";
    }
  }
  std::vector<std::string> hosts;
  std::string topology;
};

constexpr auto kNode = &Topology::Place::node;
constexpr auto kRack = &Topology::Place::rack;
constexpr auto kSwitch = &Topology::Place::switch_name;

}  // namespace

TEST_CASE("no two copies are behind one switch while there are as many switches") {
  const Room room(3, 2, 2);
  TestPool pool("3", room.hosts, room.topology);
  const auto files = pool.write(60);
  pool.live(3s);
  pool.check_threes(files, kSwitch, 3);
  CHECK(pool.broken().empty());
}

TEST_CASE("no two copies are in one rack while there are as many racks, also after losses") {
  const Room room(2, 2, 3);
  TestPool pool("3", room.hosts, room.topology);
  const auto files = pool.write(60);
  pool.live(3s);
  const auto check = [&] {
    pool.check_threes(files, kRack, 3);
    pool.check_threes(files, kSwitch, 2);
  };
  check();
  pool.kill_rack("r1");
  pool.live(16s);
  check();
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("no two copies are on one node, which may be several hosts, while there are as many") {
  const std::vector<std::string> hosts{"a0", "a1", "b0", "b1", "c0", "c1"};
  std::string topology;
  for (const std::string& host : hosts) topology += host + " node=" + host[0] + " rack=one\n";
  TestPool pool("3", hosts, topology);
  const auto files = pool.write(60);
  pool.live(3s);
  pool.check_threes(files, kNode, 3);
}

TEST_CASE("no two copies are on one host while there are as many hosts") {
  TestPool pool("3", {"x", "x", "x", "y", "y", "y", "z", "z", "z"});
  const auto files = pool.write(60);
  pool.live(3s);
  pool.check_hosts(files);
}

TEST_CASE(
    "with fewer racks than copies these are on different hosts of all racks, until there are") {
  const Room room(1, 3, 4);
  // The third rack has no benefactors yet.
  const std::vector<std::string> first(room.hosts.begin(), room.hosts.begin() + 8);
  TestPool pool("3", first, room.topology);
  const auto files = pool.write(60);
  pool.live(3s);
  pool.check_hosts(files);
  pool.check_threes(files, kRack, 2);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  for (std::size_t i = 8; i < room.hosts.size(); ++i) pool.add(room.hosts[i]);
  pool.live(10s);
  pool.check_threes(files, kRack, 3);
  // After the loss of a rack, all copies are in the two remaining racks.
  pool.kill_rack("r0");
  pool.live(16s);
  pool.check_threes(files, kRack, 2);
  CHECK(pool.broken().empty());
}

TEST_CASE("with one full rack its copies wait, and none is beside another") {
  const Room room(1, 2, 2);
  TestPool pool("2", room.hosts, room.topology);
  for (std::size_t i = 2; i < 4; ++i) {
    const BenefactorId id = pool.benefactors[i]->id;
    REQUIRE(pool.service->pool().space().take(id, kArena, kArena));
  }
  const auto files = pool.write(10);
  pool.live(3s);
  for (const FileId file : files) CHECK(pool.holders_of(file).size() == 1);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 10);
}

TEST_CASE("no two blocks of a stripe are in one rack while there are as many racks") {
  const Room room(2, 3, 2);
  TestPool pool("ec(4,2)", room.hosts, room.topology);
  const auto files = pool.write(48);
  pool.live(5s);
  for (const FileId file : files) {
    const auto blocks = pool.stripe_of(file);
    CHECK(pool.count(blocks, kRack) == blocks.size());
    CHECK(blocks.size() >= 3);
  }
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  // Any two racks may fail.
  pool.kill_rack("r0");
  pool.kill_rack("r4");
  pool.live(20s);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
  for (const FileId file : files) {
    const auto blocks = pool.stripe_of(file);
    CHECK(pool.hosts_of(blocks) == blocks.size());
  }
  CHECK(pool.broken().empty());
}

TEST_CASE(
    "a stripe is as long as there are racks, with two more than parity blocks, else as hosts") {
  const Room three(1, 3, 4);
  TestPool shorter("ec(4,1)", three.hosts, three.topology);
  const auto files = shorter.write(24);
  shorter.live(4s);
  for (const FileId file : files) {
    const auto blocks = shorter.stripe_of(file);
    CHECK(blocks.size() <= 3);
    CHECK(shorter.count(blocks, kRack) == blocks.size());
  }
  const Room two(1, 2, 5);
  TestPool hosts("ec(4,1)", two.hosts, two.topology);
  const auto others = hosts.write(40);
  hosts.live(4s);
  std::size_t longest = 0;
  for (const FileId file : others) {
    const auto blocks = hosts.stripe_of(file);
    CHECK(hosts.hosts_of(blocks) == blocks.size());
    longest = std::max(longest, blocks.size());
  }
  CHECK(longest == 5);
}

/// The sets of benefactors that hold all copies of a chunk.
struct Copysets {
  /// `holders`: the benefactors of one chunk, its first place first.
  void add(const std::vector<BenefactorId>& holders, std::size_t copies) {
    const auto made = sets.emplace(holders.begin(), holders.end()).first;
    REQUIRE(holders.size() == copies);
    REQUIRE(made->size() == copies);
    others[holders[0]].insert(holders.begin() + 1, holders.end());
  }

  std::set<std::set<BenefactorId>> sets;
  std::map<BenefactorId, std::set<BenefactorId>> others;  ///< the other holders, by the first place
};

TEST_CASE("few sets of benefactors hold all copies of anything") {
  constexpr std::size_t kHosts = 20;
  for (const std::size_t copies : {2U, 3U}) {
    INFO(copies);
    const Room room(1, 1, kHosts);
    TestPool pool(std::to_string(copies), room.hosts);
    Copysets found;
    for (int round = 0; round < 10; ++round) {
      const auto files = pool.write(60);
      pool.live(2s);
      for (const FileId file : files) {
        found.add(pool.holders_of(file), copies);
      }
    }
    // Each benefactor shares chunks with few others. There are 190 possible pairs and 1140 triples.
    for (const auto& [first, rest] : found.others) {
      for (const BenefactorId other : rest) {
        const auto before =
            std::ranges::count_if(found.others, [&, primary = first](const auto& entry) {
              return entry.first != primary && precedes_as_copy_target(primary, entry.first, other);
            });
        CHECK(before < static_cast<std::ptrdiff_t>(kCopyScatter));
      }
    }
    CHECK(found.others.size() == kHosts);
    constexpr std::size_t kPairs = kCopyScatter * (kCopyScatter - 1) / 2;
    CHECK(found.sets.size() <= kHosts * (copies == 2 ? kCopyScatter : kPairs));
  }
}

TEST_CASE("few sets of benefactors hold all copies of anything, also in racks") {
  const Room room(1, 6, 4);
  TestPool pool("3", room.hosts, room.topology);
  Copysets found;
  for (int round = 0; round < 10; ++round) {
    const auto files = pool.write(60);
    pool.live(2s);
    for (const FileId file : files) {
      found.add(pool.holders_of(file), 3);
    }
  }
  // There are 1280 possible triples in different racks.
  CHECK(found.sets.size() <= room.hosts.size() * 6);
}

TEST_CASE("what a client writes to several places at once is in the sets that copies are in") {
  constexpr std::size_t kHosts = 20;
  for (const std::uint32_t copies : {2U, 3U}) {
    INFO(copies);
    const Room room(1, 1, kHosts);
    TestPool pool(std::to_string(copies), room.hosts);
    Copysets found;
    for (int round = 0; round < 10; ++round) {
      for (const FileId file : pool.write_at_once(60, kChunk, copies)) {
        found.add(pool.holders_of(file), copies);
      }
      pool.live(1s);
    }
    std::set<BenefactorId> used;
    for (const auto& [first, rest] : found.others) CHECK(rest.size() <= kCopyScatter);
    for (const auto& set : found.sets) used.insert(set.begin(), set.end());
    CHECK(used.size() == kHosts);
    constexpr std::size_t kPairs = kCopyScatter * (kCopyScatter - 1) / 2;
    CHECK(found.sets.size() <= kHosts * (copies == 2 ? kCopyScatter : kPairs));
    CHECK(pool.service->planners().copies.figures().copies_made == 0);
    CHECK(pool.broken().empty());
  }
}

TEST_CASE("what a client writes to several places at once is in different racks, or hosts of all") {
  const Room threes(1, 4, 3);
  TestPool racks("3", threes.hosts, threes.topology);
  racks.check_threes(racks.write_at_once(60, kChunk, 3), kRack, 3);
  const Room twos(1, 2, 4);
  TestPool hosts("3", twos.hosts, twos.topology);
  const auto files = hosts.write_at_once(60, kChunk, 3);
  hosts.check_hosts(files);
  hosts.check_threes(files, kRack, 2);
  hosts.live(3s);
  CHECK(hosts.service->planners().copies.figures().copies_made == 0);
}

TEST_CASE("each benefactor of a small pool gets as much of what is written to several places") {
  for (const std::uint32_t copies : {2U, 3U}) {
    INFO(copies);
    TestPool pool(std::to_string(copies), {"a", "b", "c"});
    std::map<BenefactorId, std::uint64_t> bytes;
    for (const Grant& grant : pool.open_at_once(3 * extent_bytes(limits::kMiB)).grants) {
      bytes[grant.benefactor] += grant.length;
    }
    CHECK(bytes.size() == 3);
    std::set<std::uint64_t> shares;
    for (const auto& [id, share] : bytes) shares.insert(share);
    CHECK(shares.size() == 1);
  }
}

TEST_CASE("a chunk that lacks a place gets it beside the others, or is told at once of none") {
  const Room room(1, 1, 8);
  TestPool pool("2", room.hosts);
  const auto opened = pool.open_at_once(extent_bytes(kChunk));
  const BenefactorId first = opened.grants.at(0).benefactor;
  const BenefactorId second = opened.grants.at(1).benefactor;
  msg::Place place{opened.session, {}, extent_bytes(kChunk), {first}, {}};
  place.beside = {second};
  const auto placed = pool.client->call(place);
  REQUIRE(placed);
  REQUIRE(placed->grants.size() == 1);
  CHECK(placed->grants[0].first == second);
  CHECK(placed->grants[0].benefactor != first);
  CHECK(placed->grants[0].benefactor != second);
  for (const auto& each : pool.benefactors) {
    if (each->id != second) place.avoid.push_back(each->id);
  }
  const Time before = pool.clock.now();
  const auto none = pool.client->call(place);
  REQUIRE(none);
  CHECK(none->grants.empty());
  CHECK(pool.clock.now() == before);
  place.beside = {BenefactorId{999}};
  REQUIRE(pool.client->call(place)->grants.empty());
}

TEST_CASE("a session in a pool that has one host for all copies writes to one place") {
  TestPool pool("2", {"a"});
  const auto opened = pool.open_at_once(extent_bytes(kChunk));
  CHECK(opened.places == 2);
  REQUIRE(opened.grants.size() == 1);
  CHECK(opened.grants[0].length >= extent_bytes(kChunk));
}
