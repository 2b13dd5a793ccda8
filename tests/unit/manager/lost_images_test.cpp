#include "manager/replication/lost_images.h"

#include "manager/arenas/scrubber.h"
#include "manager/replication/copy_planner.h"
#include "tests/support/captured_log.h"
#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;
using stdchk::test::CapturedLog;

constexpr std::uint32_t kChunk = 100000;
constexpr Duration kUntilGone = 16s;
const char* const kLost = "have no copy any more";

struct TestPool : HostsPool {
  explicit TestPool(const std::vector<std::string>& hosts, std::uint32_t copies = 1)
      : HostsPool(copies, hosts, 64 * limits::kMiB) {}
  TestBenefactor& holder(FileId file) { return of(copies_of(file).at(0).benefactor); }
  /// Corrupts the file's only copy in memory; a reader reports it.
  void spoil(FileId file) {
    const Extent copy = copies_of(file).at(0);
    of(copy.benefactor).wrong.insert(copy.offset);
    REQUIRE(client->call(msg::ReportWrongCopy{client->id, file, 1, copy}));
  }
  void remove(const std::string& name) {
    REQUIRE(client->call(msg::Remove{client->id, kRootFile, name}));
  }
};

}  // namespace

TEST_CASE("an image whose only copy is found wrong is named, though no benefactor came or went") {
  TestPool pool({"x", "y"});
  const auto files = pool.write_images(2, kChunk);
  pool.live(1s);
  const CapturedLog log;
  pool.spoil(files[0]);
  pool.live(1s);
  CHECK(log.count("image f1: 100000 of its 100000 bytes have no copy any more") == 1);
  CHECK(log.count("image f2") == 0);
  // The log names the image once, even when benefactors join.
  pool.add("z");
  pool.live(2s);
  CHECK(log.count(kLost) == 1);
}

TEST_CASE("an image that the scrub finds lost is named") {
  TestPool pool({"x"});
  const auto file = pool.write_images(1, kChunk)[0];
  const CapturedLog log;
  pool.holder(file).wrong = {pool.copies_of(file)[0].offset};
  REQUIRE(pool.client->call(msg::Scrub{true}));
  pool.live(4s);
  CHECK(log.count("image f1") == 1);
}

TEST_CASE("an image that loses no more than a removed one had lost is named") {
  TestPool pool({"x", "y"});
  const auto files = pool.write_images(2, kChunk);
  // Each benefactor holds one image.
  REQUIRE(&pool.holder(files[0]) != &pool.holder(files[1]));
  TestBenefactor& second = pool.holder(files[1]);
  CapturedLog log;
  pool.holder(files[0]).disconnect();
  pool.live(kUntilGone);
  CHECK(log.count("image f1") == 1);
  CHECK(log.count(kLost) == 1);
  pool.remove("f1");
  pool.live(1s);
  log.forget();
  second.disconnect();
  pool.live(kUntilGone);
  CHECK(log.count("image f2") == 1);
  CHECK(log.count(kLost) == 1);
}

TEST_CASE("an image is named whose chunk has the number of one that was lost and removed") {
  TestPool pool({"x"});
  CapturedLog log;
  const auto first = pool.write_images(1, kChunk)[0];
  const ChunkIndex number = pool.chunk_of(first);
  pool.spoil(first);
  pool.live(1s);
  CHECK(log.count("image f1") == 1);
  pool.remove("f1");
  pool.live(1s);
  const auto next = pool.write_images(1, kChunk)[0];
  REQUIRE(pool.chunk_of(next) == number);
  pool.spoil(next);
  pool.live(1s);
  CHECK(log.count("image f2") == 1);
}

TEST_CASE("an image that was whole again is named when it is lost once more") {
  TestPool pool({"x"});
  const auto file = pool.write_images(1, kChunk)[0];
  TestBenefactor& holder = pool.holder(file);
  const CapturedLog log;
  for (std::size_t times = 1; times <= 2; ++times) {
    holder.disconnect();
    pool.live(kUntilGone);
    CHECK(log.count("image f1") == times);
    holder.connect();
    holder.register_now();
    pool.live(2s);
    CHECK(pool.service->planners().copies.figures().lost_chunks == 0);
  }
}

TEST_CASE("a large loss is named in parts, each image once") {
  constexpr std::size_t kImages = 3 * LostImages::kNamedMax + 1;
  TestPool pool({"x"});
  const auto files = pool.write_images(kImages, 1000);
  CapturedLog log;
  pool.holder(files[0]).disconnect();
  for (std::size_t passed = 0; log.count(kLost) == 0 && passed < 300; ++passed) {
    if (passed % 10 == 0) REQUIRE(pool.client->call(msg::ClientHeartbeat{pool.client->id}));
    pool.pass(100ms);
  }
  CHECK(log.count(kLost) > 0);
  CHECK(log.count(kLost) <= LostImages::kNamedMax);
  // An image that is removed before its turn is not named.
  pool.remove("f" + std::to_string(kImages));
  pool.pass(2s);
  CHECK(log.count(kLost) == kImages - 1);
  CHECK(log.count("image f1:") == 1);
  CHECK(log.count("image f" + std::to_string(kImages - 1) + ":") == 1);
}
