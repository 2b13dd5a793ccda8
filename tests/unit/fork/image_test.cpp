#include "fork/pager/image.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/pager/image_record.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::pager {
namespace {

std::byte byte_of(std::uint64_t offset) { return std::byte((offset / 4096 * 7 + 1) & 0xffU); }

/// A source whose blocks can be lost.
class FakeSource final : public Source {
 public:
  explicit FakeSource(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}
  std::uint64_t size_bytes() const override { return size_bytes_; }
  const std::string& name() const override { return name_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override {
    const std::lock_guard lock(mutex_);
    ++reads;
    for (std::uint64_t at = offset; at < offset + out.size(); at += kBlockBytes) {
      if (lost.count(at / kBlockBytes) > 0) return fail(Code::kDataLost, "fake");
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = byte_of(offset + i);
    return {};
  }
  bool is_hole(std::uint64_t offset, std::uint64_t bytes) override {
    return offset >= hole.first * kBlockBytes && offset + bytes <= hole.end() * kBlockBytes;
  }

  std::set<std::uint64_t> lost;
  BlockRange hole;
  int reads = 0;

 private:
  const std::uint64_t size_bytes_;
  const std::string name_ = "fake";
  std::mutex mutex_;
};

struct Scene {
  explicit Scene(std::uint64_t size_bytes) : source(std::make_shared<FakeSource>(size_bytes)) {
    image = *Image::create(1, source, host());
  }
  Image::Host host() {
    return {[this](const Waiter& waiter) { woken.push_back(waiter.address); },
            [this](const Image&, const Waiter& waiter, std::uint64_t, const Error& error) {
              denied.push_back(waiter.address);
              why = error.code;
            },
            [this](Image&, const BlockRange& range) { later.push_back(range); }, counts};
  }
  bool memory_is_right(std::uint64_t offset, std::uint64_t bytes) const {
    void* at =
        ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, image->memory(), static_cast<off_t>(offset));
    bool right = true;
    for (std::uint64_t i = 0; i < bytes; ++i) {
      right = right && static_cast<std::byte*>(at)[i] == byte_of(offset + i);
    }
    ::munmap(at, bytes);
    return right;
  }

  ImageCounts counts;
  std::vector<std::uint64_t> woken;
  std::vector<std::uint64_t> denied;
  Code why = Code::kInternal;
  std::vector<BlockRange> later;
  std::shared_ptr<FakeSource> source;
  std::shared_ptr<Image> image;
  Piece piece = make_piece();
};

TEST_CASE("a clone that jumps waits for one block, and the rest of its window comes later") {
  Scene scene(100 * kBlockBytes);
  scene.image->fault({1, 0x1000}, 40 * kBlockBytes + 4096, 4, scene.piece);
  CHECK(scene.woken == std::vector<std::uint64_t>{0x1000});
  CHECK(scene.later == std::vector<BlockRange>{{41, 3}});
  CHECK(scene.image->present_bytes() == kBlockBytes);
  CHECK(scene.memory_is_right(40 * kBlockBytes, kBlockBytes));
  scene.image->fetch_ahead(scene.later[0], scene.piece);
  CHECK(scene.memory_is_right(40 * kBlockBytes, 4 * kBlockBytes));
  scene.image->fault({1, 0x2000}, 42 * kBlockBytes, 4, scene.piece);
  CHECK(scene.source->reads == 2);
}

TEST_CASE("a block that cannot be fetched is denied to those who wait for it, and to nobody else") {
  Scene scene(100 * kBlockBytes);
  scene.source->lost = {10, 33};
  // A piece of a run with a lost block in it: the touched block is another one.
  scene.image->fault({1, 0x1000}, 32 * kBlockBytes, 32, scene.piece);
  CHECK(scene.woken == std::vector<std::uint64_t>{0x1000});
  CHECK(scene.denied.empty());
  scene.image->fault({1, 0x3000}, 10 * kBlockBytes, 4, scene.piece);
  CHECK(scene.denied == std::vector<std::uint64_t>{0x3000});
  CHECK(scene.why == Code::kDataLost);
  scene.source->lost.clear();
  scene.image->fault({2, 0x4000}, 10 * kBlockBytes, 4, scene.piece);
  CHECK(scene.woken.back() == 0x4000);
}

TEST_CASE("the bytes behind the end of an image are zeros") {
  Scene scene(kBlockBytes + 100);
  REQUIRE(scene.image->fetch({0, 2}, scene.piece));
  CHECK(scene.memory_is_right(kBlockBytes, 100));
  auto* at = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * kBlockBytes, PROT_READ, MAP_SHARED, scene.image->memory(), 0));
  for (std::uint64_t i = kBlockBytes + 100; i < 2 * kBlockBytes; ++i) REQUIRE(at[i] == std::byte{});
  ::munmap(at, 2 * kBlockBytes);
}

TEST_CASE("a hole of an image reads as zeros, and nothing is fetched for it") {
  Scene scene(100 * kBlockBytes);
  scene.source->hole = {32, 32};
  scene.image->fault({1, 0x1000}, 40 * kBlockBytes, 1, scene.piece);
  CHECK(scene.woken == std::vector<std::uint64_t>{0x1000});
  REQUIRE(scene.image->fetch({32, 32}, scene.piece));
  CHECK(scene.source->reads == 0);
  CHECK(scene.counts.bytes_holes == 32 * kBlockBytes);
  CHECK(scene.counts.bytes_wanted + scene.counts.bytes_ahead == 0);
  std::vector<std::byte> found(32 * kBlockBytes, std::byte{1});
  const auto bytes = static_cast<ssize_t>(found.size());
  REQUIRE(::pread(scene.image->memory(), found.data(), found.size(), 32 * kBlockBytes) == bytes);
  CHECK(found == std::vector<std::byte>(found.size()));
  // Blocks beside the hole are read.
  REQUIRE(scene.image->fetch({24, 8}, scene.piece));
  CHECK(scene.memory_is_right(24 * kBlockBytes, 8 * kBlockBytes));
  CHECK(scene.counts.bytes_ahead == 8 * kBlockBytes);
}

TEST_CASE("an image of no bytes has no memory") {
  Scene scene(kBlockBytes);
  CHECK_FALSE(Image::create(2, std::make_shared<FakeSource>(0), scene.host()));
}

TEST_CASE("memory that was given up is fetched again, and counted") {
  Scene scene(64 * kBlockBytes);
  REQUIRE(scene.image->fetch({0, 64}, scene.piece));
  CHECK(scene.counts.bytes_present == 64 * kBlockBytes);
  while (scene.image->evict_oldest() > 0) {
  }
  CHECK(scene.counts.bytes_present == 0);
  REQUIRE(scene.image->fetch({3, 1}, scene.piece));
  CHECK(scene.memory_is_right(3 * kBlockBytes, kBlockBytes));
  scene.image.reset();
  CHECK(scene.counts.bytes_present == 0);
}

TEST_CASE("a new server finds in the memory file what the server before has fetched") {
  Scene scene(64 * kBlockBytes);
  REQUIRE(scene.image->fetch({5, 20}, scene.piece));
  // A block of which a dying server has written the first page only.
  const std::vector<std::byte> page(4096);
  REQUIRE(::pwrite(scene.image->memory(), page.data(), page.size(), 40 * kBlockBytes) == 4096);
  const auto again =
      Image::adopt(1, scene.source, Descriptor(::dup(scene.image->memory())), scene.host());
  REQUIRE(again);
  CHECK((*again)->present_bytes() == 20 * kBlockBytes);
  const int before = scene.source->reads;
  REQUIRE((*again)->fetch({5, 20}, scene.piece));
  CHECK(scene.source->reads == before);
  REQUIRE((*again)->fetch({40, 1}, scene.piece));
  CHECK(scene.memory_is_right(40 * kBlockBytes, kBlockBytes));
}

TEST_CASE("a recorded order is fetched ahead of a clone that begins as the one before") {
  Scene scene(1000 * kBlockBytes);
  for (const std::uint64_t block : {900U, 17U, 500U}) {
    scene.image->fault({1, 0}, block * kBlockBytes, 1, scene.piece);
  }
  const std::string order = scene.image->new_order();
  REQUIRE_FALSE(order.empty());
  Scene next(1000 * kBlockBytes);
  next.image->use_order(order);
  next.image->fault({1, 0}, 900 * kBlockBytes, 1, next.piece);
  CHECK(next.later == std::vector<BlockRange>{{17, 1}, {500, 1}});
  CHECK(next.image->new_order().empty());
}

TEST_CASE("threads that want the same blocks fetch each once") {
  Scene scene(256 * kBlockBytes);
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::atomic<int> fetched{0};  // the main thread alone uses Catch2's macros
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      Piece piece = make_piece();
      if (scene.image->fetch({0, 256}, piece)) ++fetched;
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(fetched == kThreads);
  CHECK(scene.memory_is_right(0, 256 * kBlockBytes));
  CHECK(scene.counts.bytes_ahead == 256 * kBlockBytes);
}

TEST_CASE("a server that is started again knows a sender's image without its sender") {
  CastPlace place;
  place.group = test::secret_of(1);
  place.own = {0x7f000001, 0};
  SourceRecord record;
  record.kind = SourceKind::kCast;
  record.name = "cast://127.0.0.1:9/" + std::string(64, 'a');
  record.image_bytes = 5 * kBlockBytes + 7;
  const auto decoded = SourceRecord::decode(record.encode());
  REQUIRE(decoded);
  SystemClock clock;
  PoolConnection pool({}, clock);
  const Time begun = clock.now();
  const auto source = source_of(*decoded, Descriptor(), pool, place);
  CHECK(clock.now() - begun < std::chrono::seconds(1));
  REQUIRE(source);
  CHECK((*source)->size_bytes() == record.image_bytes);
  CHECK(key_of(**source) == record.name);
  CHECK(record_of(**source).encode() == record.encode());
}

}  // namespace
}  // namespace stdchk::pager
