// Tests the write totals that clients report for the pool's report card.
#include <chrono>
#include <thread>

#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

msg::PoolTotals totals_of(Filesystem& asking) {
  const auto reply = asking.stat_pool();
  REQUIRE(reply.has_value());
  return reply->totals;
}

/// Waits until the manager knows of `committed_bytes`; a heartbeat may be needed.
msg::PoolTotals totals_with(Filesystem& asking, std::uint64_t committed_bytes) {
  for (int i = 0; i < 1000; ++i) {
    const msg::PoolTotals totals = totals_of(asking);
    if (totals.writers.committed_bytes >= committed_bytes) return totals;
    std::this_thread::sleep_for(10ms);
  }
  FAIL("the manager has not heard of the writes");
  return {};
}

std::unique_ptr<File> create(Filesystem& filesystem, std::string_view name) {
  auto file = filesystem.create(kRootFile, name, writing(), {});
  REQUIRE(file.has_value());
  return std::move(*file);
}

void write(Filesystem& filesystem, std::string_view name, const std::vector<std::byte>& bytes,
           Duration pause = {}) {
  auto file = create(filesystem, name);
  REQUIRE(file->write(0, bytes).has_value());
  std::this_thread::sleep_for(pause);
  REQUIRE(file->close().has_value());
}

}  // namespace

TEST_CASE("the times from open to close and to the commit, once for each byte") {
  Pool pool(2, kArena, Naming::kOn);
  auto one = pool.connect();
  auto two = pool.connect();
  const auto bytes = random_bytes(10 * kChunk, 1);
  write(*one, "app.N0.T1", bytes, 50ms);
  write(*two, "app.N1.T1", bytes, 50ms);  // equal content
  const auto file = create(*one, "log");
  std::this_thread::sleep_for(20ms);
  REQUIRE(file->write(0, bytes).has_value());
  REQUIRE(file->commit().has_value());
  REQUIRE(file->commit().has_value());
  std::this_thread::sleep_for(200ms);  // nothing is written in this time
  REQUIRE(file->write(0, ByteSpan(bytes).first(kChunk)).has_value());
  REQUIRE(file->close().has_value());
  const std::uint64_t all = 31 * kChunk;
  const msg::PoolTotals totals = totals_with(*two, all);
  CHECK(totals.images == 3);
  CHECK(totals.written_bytes == all);
  CHECK(totals.stored_bytes == bytes.size());
  CHECK(totals.writers.closed_bytes == all);
  CHECK(totals.writers.committed_bytes == all);
  CHECK(totals.writers.open_to_close_ns >= 120'000'000);
  CHECK(totals.writers.open_to_close_ns < 10'000'000'000);
  CHECK(totals.writers.open_to_commit_ns >= 120'000'000);
  CHECK(totals.writers.open_to_commit_ns <= totals.writers.open_to_close_ns);
  CHECK(totals.writers.longest_call_ns > 0);
  CHECK(totals.writers.longest_call_ns < totals.writers.open_to_close_ns);
  CHECK(totals.writers.named_bytes == all);
  CHECK(totals.writers.equal_bytes == 21 * kChunk);
  CHECK(totals.writers.naming_ns > 0);
}

TEST_CASE("the goodbye tells what the last heartbeat did not, once") {
  Pool pool(2, kArena, Naming::kOff);
  auto asking = pool.connect();
  const auto bytes = random_bytes(3 * kChunk, 1);
  for (int i = 0; i < 3; ++i) {
    auto writer = pool.connect();
    write(*writer, "app.N" + std::to_string(i) + ".T1", bytes);
    writer.reset();
    const std::uint64_t all = (static_cast<std::uint64_t>(i) + 1) * bytes.size();
    CHECK(totals_with(*asking, all).writers.closed_bytes == all);
  }
  CHECK(totals_of(*asking).writers.named_bytes == 0);
  CHECK(totals_of(*asking).writers.naming_ns == 0);
}

TEST_CASE("an early close returns before the commit: OT is above AT") {
  Pool pool(2, kArena, Naming::kOff);
  StoppableClock delays;
  Options options;
  options.close_mode = CloseMode::kEarly;
  auto early = pool.connect_slowly(options, delays, 300ms);
  auto asking = pool.connect();
  const auto bytes = random_bytes(4 * kChunk, 1);
  write(*early, "app.N0.T1", bytes);
  const msg::WriterTotals totals = totals_with(*asking, bytes.size()).writers;
  CHECK(totals.closed_bytes == bytes.size());
  CHECK(totals.committed_bytes == bytes.size());
  CHECK(totals.open_to_close_ns < totals.open_to_commit_ns);
}

TEST_CASE("what is read comes from the pool at first, and then from the cache") {
  Pool pool(2, kArena, Naming::kOff);
  auto writer = pool.connect();
  const auto bytes = random_bytes(6 * kChunk, 1);
  write(*writer, "app.N0.T1", bytes);
  auto reader = pool.connect();
  const auto found = reader->lookup(kRootFile, "app.N0.T1");
  REQUIRE(found.has_value());
  const auto read = [&](std::uint64_t offset, std::size_t length) {
    OpenFlags flags;
    flags.read = true;
    auto file = reader->open(found->id, flags);
    REQUIRE(file.has_value());
    std::vector<std::byte> out(length);
    REQUIRE((*file)->read(offset, out).value() == length);
    REQUIRE((*file)->close().has_value());
  };
  read(kChunk / 2, kChunk);  // touches two chunks
  read(kChunk / 2, kChunk);
  read(0, bytes.size());
  reader.reset();
  CHECK(totals_of(*writer).readers == msg::ReaderTotals{6 * kChunk, 2 * kChunk, 0});
}

TEST_CASE("what was not committed is not counted, and the wait for it is") {
  Pool pool(2, kArena, Naming::kOff);
  auto writer = pool.connect();
  auto asking = pool.connect();
  const auto bytes = random_bytes(2 * kChunk, 1);
  auto file = create(*writer, "app.N0.T1");
  REQUIRE(file->write(0, bytes).has_value());
  file->abort();
  REQUIRE_FALSE(file->close().has_value());
  file.reset();
  writer.reset();
  const msg::PoolTotals totals = totals_of(*asking);
  CHECK(totals.images == 0);
  CHECK(totals.written_bytes == 0);
  CHECK(totals.writers.closed_bytes == 0);
  CHECK(totals.writers.committed_bytes == 0);
  CHECK(totals.writers.longest_call_ns > 0);
}

}  // namespace stdchk::client::test
