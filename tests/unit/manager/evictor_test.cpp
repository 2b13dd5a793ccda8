#include "manager/drain/evictor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

/// The evictor releases two chunks of this length at once.
constexpr std::uint32_t kLength = limits::kChunkBytesMax;

/// A pool with room for four chunks, and one client.
struct SmallPool {
  SmallPool() {
    world.start();
    one.emplace(world, "b1", 1, 4 * extent_bytes(kLength) + 4096);
    client.emplace(world, "client");
  }
  void restart() {
    world.restart();
    one->connect();
    one->served.clear();
    one->register_now();
    client->connect();
    client->register_now();
  }
  void run(Duration time) {
    for (Duration passed{}; passed < time; passed += 500ms) {
      world.pass(500ms);
      one->beat();
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    }
  }
  /// Writes a file of one chunk.
  Result<FileId> write(const std::string& name, std::uint64_t chunk = 0) {
    const auto opened = client->create(name);
    if (!opened) return fail(opened.error());
    return commit(*opened, chunk, 0);
  }
  /// Writes the drained chunk of that version into the pool again.
  Result<FileId> load(FileId file, Version version) {
    const auto opened = client->open(file);
    if (!opened) return fail(opened.error());
    return commit(*opened, 0, version);
  }
  Result<FileId> commit(const msg::OpenSession::Reply& opened, std::uint64_t chunk,
                        Version same_as) {
    const std::uint64_t bytes = extent_bytes(kLength);
    const auto placed = client->call(
        msg::Place{opened.session, {}, bytes, {}, {}, static_cast<std::uint32_t>(bytes)});
    if (!placed) return fail(placed.error());
    auto commit = TestClient::commit_of(opened.session, placed->grants.at(0), 0, kLength, chunk);
    commit.written.chunks[0].crc = 7;
    commit.same_as = same_as;
    commit.end = true;
    const auto committed = client->call(commit);
    if (committed) return opened.attributes.id;
    REQUIRE(client->call(msg::CloseSession{opened.session}));
    return fail(committed.error());
  }
  /// Writes a file and waits until it is drained.
  FileId drained(const std::string& name, std::uint64_t chunk = 0) {
    const auto file = write(name, chunk);
    REQUIRE(file);
    run(1s);
    REQUIRE(state(name) == DrainState::kDrained);
    return *file;
  }
  DrainState state(const std::string& name) { return client->lookup(name)->drain; }
  bool in_memory(FileId file) {
    const State& all = world.service->state();
    return std::ranges::all_of(all.file(file)->newest.slices, [&](const PackedSlice& slice) {
      return all.chunks().has_copies(slice.chunk);
    });
  }
  /// Asks like `stdchk safe`.
  Result<msg::ConfirmDrained::Reply> confirm(std::vector<FileId> files) {
    return client->call(msg::ConfirmDrained{std::move(files), true});
  }
  /// Asks like `stdchk drain --wait`.
  Result<msg::ConfirmDrained::Reply> confirm_without_evicted(std::vector<FileId> files) {
    return client->call(msg::ConfirmDrained{std::move(files)});
  }
  /// Whether the benefactor has written or renamed files in the drain directory.
  bool has_drained() const {
    return !one->all<msg::DrainPieces>().empty() || !one->all<msg::DrainFinish>().empty() ||
           !one->all<msg::MirrorChange>().empty();
  }
  std::size_t looks() const { return one->all<msg::FindDrained>().size(); }
  bool is_sound() { return client->call(msg::CheckMetadata{})->broken.empty(); }

  World world{"/drain"};
  std::optional<TestBenefactor> one;
  std::optional<TestClient> client;
};

/// Fingerprints of drained files, as the manager's host would see them.
struct Fingerprints {
  explicit Fingerprints(SmallPool& small) : pool(small) { look(); }
  /// Gives the fingerprints to the manager that runs now.
  void look() {
    pool.world.service->planners().fingerprints.set_reader(
        [this](const std::vector<std::string>& paths, Duration,
               const KnownFingerprints::Done& done) {
          std::vector<FileFingerprint> out;
          out.reserve(paths.size());
          for (const std::string& path : paths) out.push_back(of[path]);
          done(answers ? std::optional(out) : std::nullopt);
        });
  }
  std::ptrdiff_t comparisons() const {
    return std::ranges::count_if(pool.one->all<msg::DrainPieces>(), [](const auto& pieces) {
      return pieces.number == 0 && pieces.base_path == "a" && pieces.pieces.size() == 1;
    });
  }
  bool is_safe(FileId file) const {
    const auto reply = pool.confirm({file});
    REQUIRE(reply);
    return reply->missing.empty() && reply->undrained.empty();
  }

  SmallPool& pool;
  std::map<std::string, FileFingerprint> of;
  bool answers = true;
};

using Indexes = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("M5: an image whose drained file was removed stays in memory, and is drained again") {
  SmallPool pool;
  const FileId old = pool.drained("old");
  const FileId next = pool.drained("next");
  pool.one->missing = {"old"};
  pool.one->fail_with = Code::kDrainFailed;
  pool.one->served.clear();
  for (const char* const name : {"c", "d", "e"}) REQUIRE(pool.write(name));
  CHECK(pool.in_memory(old));
  CHECK_FALSE(pool.in_memory(next));
  CHECK(pool.is_sound());
  const auto looked = pool.one->all<msg::FindDrained>();
  REQUIRE_FALSE(looked.empty());
  CHECK(looked[0].files.at(0).path == "old");
  CHECK(looked[0].files.at(0).size_bytes == kLength);
  pool.one->missing.clear();
  pool.one->fail_with = Code{};
  pool.run(4s);
  CHECK(pool.state("old") == DrainState::kDrained);
  const auto pieces = pool.one->all<msg::DrainPieces>();
  CHECK(std::ranges::any_of(pieces, [&](const auto& each) { return each.file == old; }));
}

TEST_CASE("equal files use their memory once, and can give it up only when all are drained") {
  SmallPool pool;
  const auto figures = [&] {
    const auto reply = pool.client->call(msg::StatPool{});
    REQUIRE(reply);
    return *reply;
  };
  const std::uint64_t free_bytes = figures().free_bytes;
  constexpr std::uint64_t kFiles = 12;
  for (std::uint64_t i = 0; i < kFiles; ++i) pool.drained("equal" + std::to_string(i), 7);
  const msg::StatPool::Reply all = figures();
  CHECK(all.evictable_bytes == extent_bytes(kLength));
  CHECK(all.free_bytes + all.evictable_bytes == free_bytes);  // as df(1) shows them
  CHECK(all.logical_bytes == kFiles * kLength);
  CHECK(all.chunk_count == 1);
  CHECK(all.totals.drained_images == kFiles);
  pool.one->fail_with = Code::kDrainFailed;
  REQUIRE(pool.write("undrained", 7));
  pool.run(1s);
  CHECK(figures().evictable_bytes == 0);
  CHECK(figures().drain_pending_files == 1);
  CHECK(figures().free_bytes == free_bytes - extent_bytes(kLength));
}

TEST_CASE("M5: a chunk that drained files share stays when one of them is gone from there") {
  SmallPool pool;
  const FileId one = pool.drained("a", 7);
  const FileId other = pool.drained("b", 7);
  const FileId alone = pool.drained("c");
  pool.one->missing = {"b"};
  pool.one->fail_with = Code::kDrainFailed;
  for (const char* const name : {"d", "e", "f"}) REQUIRE(pool.write(name));
  CHECK(pool.in_memory(one));
  CHECK(pool.in_memory(other));
  CHECK_FALSE(pool.in_memory(alone));
  CHECK(pool.state("a") == DrainState::kDrained);
  CHECK(pool.state("b") != DrainState::kDrained);
  CHECK(pool.is_sound());
}

TEST_CASE("memory stays while the drain directory cannot be looked at, and goes when it can") {
  SmallPool pool;
  const FileId old = pool.drained("a");
  for (const char* const name : {"b", "c", "d"}) pool.drained(name);
  pool.one->find_fails = true;
  CHECK(pool.confirm({old}).error().code == Code::kDrainFailed);
  const auto open = pool.client->create("e");
  REQUIRE(open);
  std::optional<rpc::Answer> placed;
  const auto place = [&] {
    placed.reset();
    const std::uint64_t bytes = extent_bytes(kLength);
    const msg::Place request{open->session, {}, bytes, {}, {}, static_cast<std::uint32_t>(bytes)};
    pool.client->peer().call(request, limits::kCallDeadline,
                             [&](rpc::Answer got) { placed = std::move(got); });
  };
  place();
  pool.run(limits::kCallDeadline);
  REQUIRE(placed);
  REQUIRE_FALSE(*placed);
  CHECK(placed->error().error.code == Code::kNoSpace);
  CHECK(pool.in_memory(old));
  CHECK(pool.state("a") == DrainState::kDrained);
  pool.one->find_fails = false;
  place();
  pool.run(6s);
  REQUIRE(placed);
  CHECK(*placed);
  CHECK_FALSE(pool.in_memory(old));
}

TEST_CASE("a look holds for some seconds, and the next one is asked for after that") {
  SmallPool pool;
  for (const char* const name : {"a", "b", "c", "d"}) pool.drained(name);
  pool.one->served.clear();
  for (const char* const name : {"e", "f", "g", "h"}) REQUIRE(pool.write(name));
  CHECK(pool.looks() == 1);
  pool.run(11s);
  REQUIRE(pool.state("e") == DrainState::kDrained);
  REQUIRE(pool.write("i"));
  CHECK(pool.looks() == 2);
}

TEST_CASE("what was asked about is not given up before older images, nor without another look") {
  SmallPool pool;
  const FileId old = pool.drained("a");
  pool.drained("b");
  pool.drained("c");
  const FileId newest = pool.drained("d");
  REQUIRE(pool.confirm({old, newest}));
  REQUIRE(pool.looks() == 1);
  REQUIRE(pool.write("e"));
  CHECK(pool.looks() == 2);
  CHECK_FALSE(pool.in_memory(old));
  CHECK(pool.in_memory(newest));
}

TEST_CASE("files are confirmed only when a benefactor has found them in the drain directory") {
  SmallPool pool;
  const FileId there = pool.drained("a");
  const FileId gone = pool.drained("b");
  pool.one->fail_with = Code::kDrainFailed;
  const auto pending = pool.client->write("c", 1000, 0);
  REQUIRE(pending);
  pool.one->missing = {"b"};
  const auto reply = pool.confirm({there, gone, *pending, FileId{999}});
  REQUIRE(reply);
  CHECK(reply->undrained == Indexes{2, 3});
  CHECK(reply->missing == Indexes{1});
  CHECK(pool.state("b") != DrainState::kDrained);
  CHECK(pool.is_sound());
  // A second drain writes the file again.
  pool.one->fail_with = Code{};
  pool.one->missing.clear();
  pool.run(4s);
  CHECK(pool.state("b") == DrainState::kDrained);
  const auto again = pool.confirm({there, gone});
  REQUIRE(again);
  CHECK(again->undrained.empty());
  CHECK(again->missing.empty());
}

TEST_CASE("an image that is only in the drain directory is missed there, and stays what it is") {
  SmallPool pool;
  const FileId file = pool.drained("a");
  for (const char* const name : {"b", "c", "d"}) pool.drained(name);
  REQUIRE(pool.write("e"));
  REQUIRE_FALSE(pool.in_memory(file));
  pool.one->missing = {"a"};
  CHECK(pool.confirm({file})->missing == Indexes{0});
  CHECK(pool.state("a") == DrainState::kDrained);
  pool.one->missing.clear();
  CHECK(pool.confirm({file})->missing.empty());
}

TEST_CASE("a drained image that memory gets back is not drained again, and can be given up again") {
  SmallPool pool;
  const FileId file = pool.drained("a");
  for (const char* const name : {"b", "c", "d", "e"}) pool.drained(name);
  REQUIRE_FALSE(pool.in_memory(file));
  const auto read = pool.client->call(msg::GetMap{pool.client->id, file});
  REQUIRE(read);
  const Attributes before = *pool.client->lookup("a");
  pool.one->served.clear();
  REQUIRE(pool.load(file, before.version));
  CHECK(pool.in_memory(file));
  CHECK(pool.state("a") == DrainState::kDrained);
  pool.run(4s);
  CHECK_FALSE(pool.has_drained());
  const auto confirmed = pool.confirm({file});
  REQUIRE(confirmed);
  CHECK(confirmed->undrained.empty());
  CHECK(confirmed->missing.empty());
  const Attributes after = *pool.client->lookup("a");
  CHECK(after.version == before.version + 1);
  CHECK(after.mtime_ns == before.mtime_ns);
  // A reader of the previous version finds its bytes in their old place.
  const auto older = pool.client->call(msg::GetMap{pool.client->id, file, before.version});
  REQUIRE(older);
  CHECK(older->page.chunks.at(0).copies.empty());
  CHECK(older->drained_path == "a");
  REQUIRE(pool.client->call(msg::Unpin{pool.client->id, file, before.version}));
  CHECK(pool.is_sound());
  for (const char* const name : {"f", "g", "h", "i"}) pool.drained(name);
  CHECK_FALSE(pool.in_memory(file));
  CHECK(pool.state("a") == DrainState::kDrained);
}

TEST_CASE("a drained image that memory has got back is drained again when it is removed there") {
  SmallPool pool;
  const FileId file = pool.drained("a");
  REQUIRE(pool.load(file, pool.client->lookup("a")->version));
  pool.one->served.clear();
  pool.one->missing = {"a"};
  CHECK(pool.confirm({file})->missing == Indexes{0});
  CHECK(pool.state("a") != DrainState::kDrained);
  pool.one->missing.clear();
  pool.run(4s);
  CHECK(pool.state("a") == DrainState::kDrained);
  CHECK(pool.has_drained());
  CHECK(pool.is_sound());
}

TEST_CASE("what is not the newest version, or not drained, is not taken for it") {
  SmallPool pool;
  const FileId file = pool.drained("a");
  const Version version = pool.client->lookup("a")->version;
  CHECK(pool.load(file, version + 1).error().code == Code::kStale);
  pool.one->missing = {"a"};
  pool.one->fail_with = Code::kDrainFailed;
  CHECK(pool.confirm({file})->missing == Indexes{0});
  CHECK(pool.load(file, version).error().code == Code::kStale);
  CHECK(pool.client->lookup("a")->version == version);
  CHECK(pool.in_memory(file));
  CHECK(pool.is_sound());
}

TEST_CASE("a file that is just being renamed in the drain directory is looked up afterwards") {
  SmallPool pool;
  const FileId file = pool.drained("a");
  pool.one->served.clear();
  pool.one->hold_back = true;
  REQUIRE(pool.client->call(msg::Rename{pool.client->id, kRootFile, "a", kRootFile, "b"}));
  std::optional<rpc::Answer> answer;
  pool.client->peer().call(msg::ConfirmDrained{{file}}, limits::kCallDeadline,
                           [&](rpc::Answer got) { answer = std::move(got); });
  pool.run(2s);
  CHECK_FALSE(answer);
  CHECK(pool.looks() == 0);
  pool.one->let_go();
  pool.run(1s);
  REQUIRE(answer);
  REQUIRE(*answer);
  CHECK(std::get<msg::ConfirmDrained::Reply>(**answer).undrained.empty());
  REQUIRE(pool.looks() == 1);
  CHECK(pool.one->all<msg::FindDrained>()[0].files.at(0).path == "b");
}

TEST_CASE("a drained file with another fingerprint is compared before it is called safe") {
  SmallPool pool;
  Fingerprints fingerprints(pool);
  fingerprints.of["a"] = {7, 100};
  const FileId file = pool.drained("a");
  CHECK(fingerprints.is_safe(file));
  CHECK(fingerprints.comparisons() == 0);
  fingerprints.of["a"] = {8, 100};  // somebody has restored it, for example
  CHECK(fingerprints.is_safe(file));
  CHECK(fingerprints.comparisons() == 1);
  CHECK(fingerprints.is_safe(file));
  CHECK(fingerprints.comparisons() == 1);
  SECTION("another manager does not know the fingerprints") {
    pool.restart();
    fingerprints.look();
    CHECK(fingerprints.is_safe(file));
    CHECK(fingerprints.is_safe(file));
    CHECK(fingerprints.comparisons() == 1);
  }
  SECTION("memory is given up by size and time while no fingerprint is known") {
    pool.restart();
    fingerprints.look();
    for (const char* const name : {"b", "c", "d", "e"}) REQUIRE(pool.write(name));
    CHECK_FALSE(pool.in_memory(file));
    CHECK(fingerprints.comparisons() == 0);
  }
  SECTION("other bytes with the same size and time") {
    fingerprints.of["a"] = {8, 200};
    pool.one->drained_bytes_differ = true;
    const auto reply = pool.confirm({file});
    REQUIRE(reply);
    CHECK(reply->missing == Indexes{0});
    CHECK(pool.state("a") != DrainState::kDrained);
    pool.run(2s);
    CHECK(pool.state("a") == DrainState::kDrained);
    CHECK(fingerprints.is_safe(file));
  }
  SECTION("a file that the manager's host cannot look at") {
    fingerprints.of["a"] = {};
    CHECK(fingerprints.is_safe(file));
    CHECK(fingerprints.comparisons() == 1);
  }
  SECTION("storage that does not answer") {
    fingerprints.answers = false;
    CHECK(pool.confirm({file}).error().code == Code::kBusy);
  }
}

TEST_CASE("a drained file without bytes in memory and without a fingerprint is compared, too") {
  SmallPool pool;
  Fingerprints fingerprints(pool);
  fingerprints.of["a"] = {7, 100};
  const FileId file = pool.drained("a");
  for (const char* const name : {"b", "c", "d", "e"}) pool.drained(name);
  REQUIRE_FALSE(pool.in_memory(file));
  pool.restart();
  fingerprints.look();
  SECTION("the same bytes") {
    CHECK(fingerprints.is_safe(file));
    CHECK(fingerprints.is_safe(file));
    CHECK(fingerprints.comparisons() == 1);
  }
  SECTION("other bytes with the same size and time") {
    pool.one->drained_bytes_differ = true;
    for (int i = 0; i < 2; ++i) CHECK(pool.confirm({file})->missing == Indexes{0});
    CHECK(pool.state("a") == DrainState::kDrained);
  }
  SECTION("a look of the evictor does not make the fingerprint known") {
    pool.drained("f");
    CHECK(fingerprints.comparisons() == 0);
    pool.one->drained_bytes_differ = true;
    CHECK(pool.confirm({file})->missing == Indexes{0});
  }
  SECTION("a question that leaves evicted files out does not make the fingerprint known") {
    pool.one->drained_bytes_differ = true;
    CHECK(pool.confirm_without_evicted({file})->missing.empty());
    CHECK(pool.confirm_without_evicted({file})->undrained.empty());
    CHECK(fingerprints.comparisons() == 0);
    CHECK(pool.confirm({file})->missing == Indexes{0});
  }
}

TEST_CASE("a drained file with bytes in memory is compared by each question") {
  SmallPool pool;
  Fingerprints fingerprints(pool);
  fingerprints.of["a"] = {7, 100};
  const FileId file = pool.drained("a");
  pool.restart();
  fingerprints.look();
  pool.one->drained_bytes_differ = true;
  CHECK(pool.confirm_without_evicted({file})->missing == Indexes{0});
  CHECK(fingerprints.comparisons() == 1);
}
