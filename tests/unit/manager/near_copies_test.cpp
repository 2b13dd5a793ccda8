#include "manager/replication/near_copies.h"

#include <memory>
#include <string>
#include <vector>

#include "core/chunk/extent_header.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;
constexpr std::uint32_t kChunk = limits::kMiB;

/// A pool with a file of one chunk. Each host without a copy has a reader.
struct ReadersPool : HostsPool {
  explicit ReadersPool(Config settings = {})
      : HostsPool(1, {"a", "b", "c", "d"}, kArena, std::move(settings)) {
    file = write_images(1, kChunk).front();
    stored = copies_of(file).front();
    for (const auto& each : benefactors) {
      if (each->id == stored.benefactor) continue;
      targets.push_back(each.get());
      readers.push_back(std::make_unique<TestClient>(*this, "reader-" + each->host, each->host));
    }
    for (const auto& each : benefactors) free_before.push_back(free_of(*each));
  }
  ~ReadersPool() { readers.clear(); }
  std::uint64_t free_of(const TestBenefactor& each) const {
    return service->pool().space().free_bytes(each.id);
  }
  bool is_all_free() const {
    for (std::size_t i = 0; i < benefactors.size(); ++i) {
      if (free_of(*benefactors[i]) != free_before[i]) return false;
    }
    return true;
  }
  msg::GetMap::Reply open(std::size_t reader) {
    const auto reply = readers[reader]->call(msg::GetMap{readers[reader]->id, file, 1, 0});
    REQUIRE(reply);
    return *reply;
  }
  void open_all() {
    for (std::size_t i = 0; i < readers.size(); ++i) open(i);
  }
  msg::FindNear::Reply find(std::size_t reader) {
    const auto reply = readers[reader]->call(msg::FindNear{readers[reader]->id, file, 1, 0});
    REQUIRE(reply);
    return *reply;
  }
  const NearCopies& near() const { return service->planners().near; }

  FileId file;
  Extent stored;
  std::vector<TestBenefactor*> targets;
  std::vector<std::unique_ptr<TestClient>> readers;
  std::vector<std::uint64_t> free_before;
};

}  // namespace

TEST_CASE("readers are told that a version is shared when the third host opens it") {
  ReadersPool pool;
  CHECK_FALSE(pool.open(0).shared);
  CHECK_FALSE(pool.open(1).shared);
  CHECK(pool.find(0).alone);
  CHECK(pool.open(2).shared);
  pool.turn();
  for (const auto& reader : pool.readers) {
    std::vector<FileId> shared;
    for (const msg::Invalidate& notice : reader->notices) {
      shared.insert(shared.end(), notice.shared.begin(), notice.shared.end());
    }
    CHECK(shared == std::vector<FileId>{pool.file});
  }
  CHECK_FALSE(pool.find(0).alone);
}

TEST_CASE("readers on one host, or on hosts without benefactors, do not share") {
  ReadersPool pool;
  pool.open(0);
  pool.open(1);
  for (const std::string host : {"elsewhere", "a-diskless-host", ""}) {
    TestClient other(pool, "reader of " + host, host);
    const auto reply = other.call(msg::GetMap{other.id, pool.file, 1, 0});
    REQUIRE(reply);
    CHECK_FALSE(reply->shared);
  }
  TestClient beside(pool, "beside", pool.targets[0]->host);
  const auto reply = beside.call(msg::GetMap{beside.id, pool.file, 1, 0});
  REQUIRE(reply);
  CHECK_FALSE(reply->shared);
}

TEST_CASE("a chunk leaves the benefactor that stores it once, and goes on from host to host") {
  ReadersPool pool;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) {
    const auto found = pool.find(i);
    CHECK(found.benefactor == pool.targets[i]->id);
    const auto copies = pool.targets[i]->all<msg::CopyExtents>();
    REQUIRE(copies.size() == 1);
    REQUIRE(copies[0].copies.size() == 1);
    CHECK(copies[0].copies[0].to_offset == found.offset);
    CHECK((copies[0].source.id == pool.stored.benefactor) == (i == 0));
  }
  // A second reader of a host is served from the copy that is there.
  CHECK(pool.find(0) == pool.find(0));
  CHECK(pool.targets[0]->all<msg::CopyExtents>().size() == 1);
  CHECK(pool.near().figures() == NearCopies::Figures{3, 3 * kChunk, kChunk});
  CHECK(pool.broken().empty());
  // Near copies are no redundancy.
  CHECK(pool.copies_of(pool.file).size() == 1);
}

TEST_CASE("a reader on the host of a stored copy is sent there") {
  ReadersPool pool;
  pool.open_all();
  TestClient there(pool, "there", pool.of(pool.stored.benefactor).host);
  REQUIRE(there.call(msg::GetMap{there.id, pool.file, 1, 0}));
  const auto found = there.call(msg::FindNear{there.id, pool.file, 1, 0});
  REQUIRE(found);
  CHECK(found->benefactor == pool.stored.benefactor);
  CHECK(found->offset == pool.stored.offset);
  CHECK(pool.near().figures().copies == 0);
}

TEST_CASE("who asks for what he has not pinned, or for a hole, gets no copy") {
  ReadersPool pool;
  pool.open_all();
  TestClient stranger(pool, "stranger", pool.targets[0]->host);
  const auto unpinned = stranger.call(msg::FindNear{stranger.id, pool.file, 1, 0});
  REQUIRE(unpinned);
  CHECK(unpinned->alone);
  const auto hole = pool.readers[0]->call(msg::FindNear{pool.readers[0]->id, pool.file, 1, kChunk});
  REQUIRE(hole);
  CHECK_FALSE(hole->benefactor);
  CHECK(pool.near().figures().copies == 0);
}

TEST_CASE("near copies are free again when nobody has asked for a while") {
  ReadersPool pool;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) pool.find(i);
  CHECK_FALSE(pool.is_all_free());
  pool.live(NearCopies::kIdle + 1s);
  CHECK(pool.is_all_free());
  CHECK(pool.broken().empty());
}

TEST_CASE("near copies are free when readers on one host only have the file open") {
  ReadersPool pool;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) pool.find(i);
  for (std::size_t i = 0; i < NearCopies::kHostsMin - 1; ++i) {
    CHECK_FALSE(pool.is_all_free());
    REQUIRE(pool.readers[i]->call(msg::Unpin{pool.readers[i]->id, pool.file, 1}));
  }
  CHECK(pool.is_all_free());
  CHECK(pool.find(2).alone);
  CHECK(pool.broken().empty());
}

TEST_CASE("the end of one file's near copies leaves those of another file") {
  ReadersPool pool;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) pool.find(i);
  const FileId first = pool.file;
  const auto other = pool.client->write("other", kChunk, 7);
  REQUIRE(other);
  pool.file = *other;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) pool.find(i);
  const auto made = pool.near().figures();
  for (const auto& reader : pool.readers) {
    REQUIRE(reader->call(msg::Unpin{reader->id, pool.file, 1}));
  }
  pool.file = first;
  for (std::size_t i = 0; i < pool.readers.size(); ++i) {
    CHECK(pool.find(i).benefactor == pool.targets[i]->id);
  }
  CHECK(pool.near().figures() == made);
  CHECK(pool.broken().empty());
}

TEST_CASE("near copies go before a writer runs out of space") {
  ReadersPool pool;
  pool.open_all();
  for (std::size_t i = 0; i < pool.readers.size(); ++i) pool.find(i);
  // All that is free without the near copies, less what does not fit beside the file.
  std::size_t written = 0;
  while (written < 4 * kArena / kChunk &&
         pool.client->write("w" + std::to_string(written), kChunk, 100 + written)) {
    ++written;
  }
  std::uint64_t fits = 0;
  for (const std::uint64_t free : pool.free_before) fits += free / extent_bytes(kChunk);
  CHECK(written == fits);
  CHECK(pool.broken().empty());
}

TEST_CASE("near copies of many chunks use at most half of the free memory") {
  ReadersPool pool;
  const auto opened = pool.client->create("long");
  REQUIRE(opened);
  constexpr std::uint64_t kCount = 20;
  msg::Commit commit;
  commit.session = opened->session;
  commit.end = true;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const auto placed =
        pool.client->call(msg::Place{opened->session, {}, extent_bytes(kChunk), {}, {}});
    REQUIRE(placed);
    const auto one = TestClient::commit_of(opened->session, placed->grants.at(0), 0, kChunk,
                                           1000 + i, i * kChunk);
    commit.written.chunks.push_back(one.written.chunks.front());
    commit.written.slices.push_back({i * kChunk, kChunk, 0, static_cast<std::uint32_t>(i)});
  }
  REQUIRE(pool.client->call(commit));
  pool.file = opened->attributes.id;
  pool.open_all();
  const std::uint64_t free = pool.free_of(*pool.targets[0]);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const auto found =
        pool.readers[0]->call(msg::FindNear{pool.readers[0]->id, pool.file, 1, i * kChunk});
    REQUIRE(found);
    CHECK(found->benefactor == pool.targets[0]->id);
    CHECK(pool.free_of(*pool.targets[0]) >= free / 2);
  }
  CHECK(pool.broken().empty());
}

TEST_CASE("a reader does not wait for a benefactor that does not answer") {
  ReadersPool pool;
  pool.open_all();
  pool.targets[0]->hold_back = true;
  const Time before = pool.clock.now();
  const auto found = pool.find(0);
  CHECK_FALSE(found.benefactor);
  CHECK_FALSE(found.alone);
  CHECK(pool.clock.now() - before < NearCopies::kPatience + 1s);
  // The copy under way does not hold up copies for redundancy.
  CHECK(pool.service->planners().traffic.load(pool.targets[0]->id) == 0);
  // The unfinished copy does not hold up other hosts.
  CHECK(pool.find(1).benefactor == pool.targets[1]->id);
  pool.targets[0]->let_go();
  pool.live(NearCopies::kIdle + 1s);
  CHECK(pool.is_all_free());
  CHECK(pool.broken().empty());
}

TEST_CASE("copies that fail are tried again, and then the reader reads what is stored") {
  ReadersPool pool;
  pool.open_all();
  pool.targets[0]->copies_fail = true;
  CHECK_FALSE(pool.find(0).benefactor);
  CHECK(pool.targets[0]->all<msg::CopyExtents>().size() == 3);
  pool.targets[0]->copies_fail = false;
  CHECK(pool.find(0).benefactor == pool.targets[0]->id);
  CHECK(pool.broken().empty());
}

TEST_CASE("the loss of a host with a near copy leaves the others theirs") {
  ReadersPool pool;
  pool.open_all();
  CHECK(pool.find(0).benefactor == pool.targets[0]->id);
  pool.targets[0]->disconnect();
  CHECK(pool.find(0).alone);
  CHECK(pool.find(1).benefactor == pool.targets[1]->id);
  CHECK(pool.find(2).benefactor == pool.targets[2]->id);
  pool.live(15s);
  CHECK(pool.broken().empty());
}

TEST_CASE("no near copies are made where the pool does not want them") {
  Config settings;
  settings.reader_copies = false;
  ReadersPool pool(settings);
  pool.open_all();
  CHECK_FALSE(pool.open(2).shared);
  CHECK(pool.find(0).alone);
}
