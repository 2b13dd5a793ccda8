#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/policy/image_placement.h"
#include "core/policy/redundancy.h"
#include "tests/unit/manager/hosts_pool.h"

/// Placement by node (docs/decisions/0070).
namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 8 * limits::kMiB;
constexpr std::uint32_t kChunk = 100'000;

Config by_node() {
  Config config;
  config.policy = *parse_policy("placement=node");
  return config;
}

const std::vector<std::string> kHosts{"n0", "n1", "n2", "n3", "n4", "n5"};

/// A pool that places by node: a benefactor on each of six hosts, and writers on any of them.
struct NodePool : HostsPool {
  explicit NodePool(std::uint32_t copies, std::uint64_t bytes = kArena,
                    const Config& settings = by_node())
      : HostsPool(copies, kHosts, bytes, settings) {}
  ~NodePool() { writers.clear(); }
  TestClient& writer_on(const std::string& host) {
    auto& writer = writers[host];
    if (!writer) writer = std::make_unique<TestClient>(*this, "writer on " + host, host);
    return *writer;
  }
  /// Lets time pass; the writers stay, too.
  void live(Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      HostsPool::live(1s);
      for (auto& [host, writer] : writers) {
        REQUIRE(writer->call(msg::ClientHeartbeat{writer->id}));
      }
    }
  }
  /// Writes an image of chunks with these names, as a client with naming does. Stores only the
  /// chunks that the manager does not know. Returns how many it has stored.
  std::size_t write(const std::string& host, const std::string& name,
                    const std::vector<std::uint64_t>& names) {
    TestClient& writer = writer_on(host);
    const auto opened = writer.create(name);
    REQUIRE(opened);
    msg::Commit commit;
    commit.session = opened->session;
    std::size_t stored = 0;
    for (const std::uint64_t each : names) {
      msg::Place place{opened->session, {}, 0, {}, {}};
      Chunk chunk = TestClient::commit_of(opened->session, {}, 0, kChunk, each).written.chunks[0];
      place.chunks = {{chunk.name, chunk.length}};
      const auto asked = writer.call(place);
      REQUIRE(asked);
      if (!asked->existing.empty()) {
        chunk = asked->existing[0].chunk;
      } else {
        chunk.copies = {stored_at(writer, opened->session)};
        ++stored;
      }
      const auto number = static_cast<std::uint32_t>(commit.written.chunks.size());
      commit.written.chunks.push_back(chunk);
      commit.written.slices.push_back({std::uint64_t{number} * kChunk, kChunk, 0, number});
    }
    commit.end = true;
    REQUIRE(writer.call(commit));
    return stored;
  }
  static Extent stored_at(TestClient& writer, SessionId session) {
    const auto unit = static_cast<std::uint32_t>(extent_bytes(kChunk));
    const auto placed = writer.call(msg::Place{session, {}, unit, {}, {}, unit});
    REQUIRE(placed);
    REQUIRE(placed->grants.size() == 1);
    return {placed->grants[0].benefactor, placed->grants[0].offset};
  }
  std::string host_of(BenefactorId id) { return of(id).host; }
  /// Returns the hosts of the image's first copies, then of its second copies, and so on. Copies on
  /// lost benefactors do not count.
  std::vector<std::set<std::string>> hosts_of(const std::string& name) {
    const auto attributes = client->lookup(name);
    REQUIRE(attributes);
    const State& state = service->state();
    std::vector<std::set<std::string>> out;
    for (const PackedSlice& slice : state.file(attributes->id)->newest.slices) {
      std::size_t number = 0;
      for (const Extent& copy : state.chunks().get(slice.chunk).copies) {
        if (!service->pool().is_readable(copy)) continue;
        if (out.size() == number) out.emplace_back();
        out[number++].insert(host_of(copy.benefactor));
      }
    }
    return out;
  }
  /// Checks that the image has `copies` copies, each whole on one host, and returns these hosts.
  std::vector<std::string> whole(const std::string& name, std::size_t copies) {
    INFO(name);
    std::vector<std::string> out;
    for (const auto& hosts : hosts_of(name)) {
      REQUIRE(hosts.size() == 1);
      out.push_back(*hosts.begin());
    }
    REQUIRE(out.size() == copies);
    CHECK(std::set<std::string>(out.begin(), out.end()).size() == copies);
    return out;
  }
  void kill(const std::string& host) {
    for (const auto& each : benefactors) {
      if (each->host == host) each->disconnect();
    }
  }
  void restart_all() {
    restart();
    const auto back = [](TestClient& each) {
      each.connect();
      each.register_now();
    };
    for (const auto& each : benefactors) {
      each->connect();
      each->register_now();
    }
    back(*client);
    for (auto& [host, writer] : writers) back(*writer);
    live(4s);
  }

  std::map<std::string, std::unique_ptr<TestClient>> writers;
};

std::vector<std::uint64_t> names_from(std::uint64_t first, std::uint64_t count = 12) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

}  // namespace

TEST_CASE("by node, an image is whole on its writer's node and on one node for each further copy") {
  for (const std::uint32_t copies : {1U, 2U, 3U}) {
    INFO(copies);
    NodePool pool(copies);
    for (const std::string& host : kHosts) {
      pool.write(host, host + ".T1", names_from(1000 * (1 + pool.writers.size())));
    }
    pool.live(3s);
    std::map<std::string, std::vector<std::string>> first;
    for (const std::string& host : kHosts) {
      first[host] = pool.whole(host + ".T1", copies);
      CHECK(first[host][0] == host);
    }
    // Further images of a node have the same peers, so that images may share chunks.
    pool.write("n3", "n3.T2", names_from(90000));
    pool.live(2s);
    CHECK(pool.whole("n3.T2", copies) == first["n3"]);
    CHECK(pool.service->planners().copies.figures().debt_chunks == 0);
    CHECK(pool.broken().empty());
  }
}

TEST_CASE("by node, a client that writes all copies at once gets places on the peers") {
  NodePool background(3);
  background.write("n2", "image", names_from(1));
  background.live(3s);
  const auto expected = background.whole("image", 3);
  NodePool pool(3);
  msg::OpenSession open;
  TestClient& writer = pool.writer_on("n2");
  open.client = writer.id;
  open.parent = kRootFile;
  open.name = "image";
  open.want_bytes = extent_bytes(kChunk);
  open.waits_for_copies = true;
  const auto opened = writer.call(open);
  REQUIRE(opened);
  std::vector<std::string> hosts;
  for (const Grant& grant : opened->grants) {
    CHECK(grant.first == opened->grants[0].benefactor);
    hosts.push_back(pool.host_of(grant.benefactor));
  }
  CHECK(hosts == expected);
  // A chunk on the node gets its further place on the first peer.
  msg::Place beside{opened->session, {}, extent_bytes(kChunk), {}, {}};
  beside.beside = {opened->grants[0].benefactor};
  const auto placed = writer.call(beside);
  REQUIRE(placed);
  REQUIRE(placed->grants.size() == 2);
  CHECK(pool.host_of(placed->grants[0].benefactor) == expected[1]);
}

TEST_CASE("by node, the copies of a lost node are made again whole on one other node") {
  NodePool pool(2);
  for (const std::string& host : kHosts) {
    pool.write(host, host + ".T1", names_from(1000 * (1 + pool.writers.size()), 20));
  }
  pool.live(3s);
  const auto before = pool.whole("n1.T1", 2);
  pool.kill(before[1]);
  pool.live(16s);
  const auto other = pool.whole("n1.T1", 2);
  CHECK(other[0] == "n1");
  CHECK(other[1] != before[1]);
  // Without its own node, the image is whole on the peer, and gets another copy.
  pool.kill("n1");
  pool.live(16s);
  const auto last = pool.whole("n1.T1", 2);
  CHECK(last[0] == other[1]);
  CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  CHECK(pool.broken().empty());
}

TEST_CASE("by node, images keep their peers when a benefactor joins") {
  NodePool pool(2);
  pool.write("n0", "T1", names_from(1));
  pool.live(2s);
  const auto before = pool.whole("T1", 2);
  for (int i = 0; i < 12; ++i) pool.add("m" + std::to_string(i));
  pool.live(3s);
  CHECK(pool.whole("T1", 2) == before);
  // The next image shares half of its chunks.
  CHECK(pool.write("n0", "T2", names_from(7)) == 6);
  pool.live(3s);
  CHECK(pool.whole("T2", 2) == before);
}

TEST_CASE("by node, chunks without room on the writer's node go to other benefactors") {
  NodePool pool(1, 10 * extent_bytes(kChunk));
  pool.write("n4", "image", names_from(1, 14));
  const auto hosts = pool.hosts_of("image");
  REQUIRE(hosts.size() == 1);
  CHECK(hosts[0].size() > 1);
  CHECK(hosts[0].contains("n4"));
  const auto on_node = std::ranges::count_if(
      pool.service->state().file(pool.client->lookup("image")->id)->newest.slices,
      [&](const PackedSlice& slice) {
        const auto copies = pool.service->state().chunks().get(slice.chunk).copies;
        return pool.host_of(copies[0].benefactor) == "n4";
      });
  CHECK(on_node == 10);
  CHECK(pool.broken().empty());
}

TEST_CASE("by node, a full peer is passed over, and the copies stay in the domains") {
  NodePool pool(2);
  pool.write("n0", "T1", names_from(1));
  pool.live(2s);
  const std::string peer = pool.whole("T1", 2)[1];
  for (const auto& each : pool.benefactors) {
    if (each->host != peer) continue;
    Space& space = pool.service->pool().space();
    while (space.take(each->id, kArena, 1)) {
    }
  }
  pool.write("n0", "T2", names_from(100));
  pool.live(2s);
  const auto next = pool.whole("T2", 2);
  CHECK(next[0] == "n0");
  CHECK(next[1] != peer);
}

TEST_CASE("by node, a writer on a node without benefactors has one benefactor, always the same") {
  NodePool pool(2);
  pool.write("login", "T1", names_from(1));
  pool.write("login", "T2", names_from(100));
  pool.live(3s);
  CHECK(pool.whole("T1", 2) == pool.whole("T2", 2));
  // Writers on several such nodes use different benefactors.
  std::set<std::string> used;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const std::string host = "login" + std::to_string(i);
    pool.write(host, host, names_from(1000 * (i + 1), 3));
    used.insert(pool.whole(host, 1)[0]);
  }
  CHECK(used.size() > 2);
}

TEST_CASE("by node, the nodes of the topology count") {
  Config config = by_node();
  config.topology = *Topology::parse("pod1 node=n2\nn2 node=n2\n");
  NodePool pool(1, kArena, config);
  pool.write("pod1", "image", names_from(1));
  CHECK(pool.whole("image", 1)[0] == "n2");
}

TEST_CASE("by node, equal chunks are shared on each node, and not between nodes") {
  NodePool pool(2);
  CHECK(pool.write("n0", "n0.T1", names_from(1)) == 12);
  // Only another node stores equal chunks again.
  CHECK(pool.write("n1", "n1.T1", names_from(1)) == 12);
  CHECK(pool.write("n0", "n0.T2", names_from(1)) == 0);
  CHECK(pool.write("n1", "n1.T2", names_from(6)) == 5);
  pool.live(3s);
  for (const char* name : {"n0.T1", "n0.T2"}) CHECK(pool.whole(name, 2)[0] == "n0");
  for (const char* name : {"n1.T1", "n1.T2"}) CHECK(pool.whole(name, 2)[0] == "n1");
  CHECK(pool.service->state().chunks().chunk_count() == 12 + 17);
  CHECK(pool.broken().empty());
  // A restarted manager knows the chunks as before.
  pool.restart_all();
  CHECK(pool.write("n1", "n1.T3", names_from(1, 17)) == 0);
  CHECK(pool.write("n0", "n0.T3", names_from(1, 17)) == 5);
  CHECK(pool.broken().empty());
  // Chunks go with the last image of their node.
  const auto removed = [&](const std::string& name) {
    REQUIRE(pool.client->call(msg::Remove{pool.client->id, kRootFile, name}));
  };
  for (const char* name : {"n0.T1", "n0.T2", "n0.T3"}) removed(name);
  CHECK(pool.service->state().chunks().chunk_count() == 17);
  CHECK(pool.write("n0", "n0.T4", names_from(1)) == 12);
  CHECK(pool.broken().empty());
}

TEST_CASE("striped images and images by node share no chunks") {
  NodePool pool(1);
  msg::SetPolicy set;
  set.client = pool.client->id;
  set.directory = kRootFile;
  const auto place = [&](ImagePlacement placement) {
    set.changes.settings = {{kPlacementKey, static_cast<std::uint64_t>(placement)}};
    REQUIRE(pool.client->call(set));
  };
  CHECK(pool.write("n0", "a", names_from(1)) == 12);
  place(ImagePlacement::kStriped);
  CHECK(pool.write("n0", "b", names_from(1)) == 12);
  CHECK(pool.write("n1", "c", names_from(1)) == 0);
  CHECK(pool.hosts_of("b")[0].size() > 1);
  place(ImagePlacement::kNode);
  CHECK(pool.write("n0", "d", names_from(1)) == 0);
  CHECK(pool.whole("d", 1)[0] == "n0");
  CHECK(pool.broken().empty());
}

TEST_CASE("a folder with parity cannot place by node, and a mount's parity stripes") {
  NodePool pool(1);
  msg::SetPolicy set;
  set.client = pool.client->id;
  set.directory = kRootFile;
  const auto parity = parse_redundancy("ec(4,1)")->number();
  set.changes.settings = {{PolicyKey::kCopies, parity}};
  CHECK(pool.client->call(set).error().code == Code::kInvalidArgument);
  set.changes.settings = {{PolicyKey::kCopies, 2}};
  CHECK(pool.client->call(set));
  set.changes.settings = {{PolicyKey::kCopies, parity},
                          {kPlacementKey, static_cast<std::uint64_t>(ImagePlacement::kStriped)}};
  CHECK(pool.client->call(set));
  set.changes.settings = {{kPlacementKey, static_cast<std::uint64_t>(ImagePlacement::kNode)}};
  CHECK(pool.client->call(set).error().code == Code::kInvalidArgument);
}

TEST_CASE("by node, a resumed session stays on its node") {
  NodePool pool(1);
  pool.write("n5", "before", names_from(1));
  pool.restart_all();
  CHECK(pool.write("n5", "after", names_from(7)) == 6);
  CHECK(pool.whole("after", 1)[0] == "n5");
}
