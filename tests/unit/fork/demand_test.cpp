// Tests reads of single units of a sender's image: what a host asks for, and over sockets what it
// gets.

#include "fork/multicast/demand.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/ask_pace.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/fetcher.h"
#include "fork/multicast/manifest.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;
using test::secret_of;
using Wants = std::vector<Want>;

constexpr std::uint32_t kLoopback = 0x7f000001;
constexpr Time kStart = Time{} + std::chrono::seconds(1);

TEST_CASE("an ask reports the rate, the delay, and the cells that were lost since the last ask") {
  AskPace pace;
  pace.measure(kStart);
  CHECK(pace.is_silent(kStart));
  pace.note_bytes(20 * 1024);
  pace.note_delay(milliseconds(8));
  pace.note_delay(milliseconds(16));
  pace.note_lost(3);
  pace.measure(kStart + milliseconds(19));
  CHECK(pace.rate() == 0);
  pace.measure(kStart + milliseconds(20));
  Ask ask;
  pace.report(kStart + milliseconds(20), ask);
  CHECK(ask.rate_kib == 1000);
  CHECK(ask.delay_us == 9000);
  CHECK(ask.lost_cells == 3);
  CHECK_FALSE(pace.is_silent(kStart + milliseconds(519)));
  CHECK(pace.is_silent(kStart + milliseconds(520)));
  CHECK(pace.patience(2, milliseconds(10)) == milliseconds(18));
  CHECK(pace.patience(2, milliseconds(20)) == milliseconds(20));
  CHECK(pace.patience(100, milliseconds(20)) == AskPace::kLateMost);
  // The rate follows slowly.
  pace.measure(kStart + milliseconds(40));
  Ask next;
  pace.report(kStart + milliseconds(40), next);
  CHECK((next.rate_kib >= 699 && next.rate_kib <= 700));
  CHECK(next.lost_cells == 0);
}

TEST_CASE("a wanted unit is asked for once, and again with growing pauses when it is late") {
  Demand demand({.units = 100, .cells = 2});
  for (const std::uint32_t unit : {5U, 6U, 6U, 9U}) demand.want(unit);
  const auto first = demand.next(kStart);
  REQUIRE(first);
  CHECK(first->wants == Wants{{5, 2, 3}, {9, 1, 3}});
  CHECK_FALSE(demand.next(kStart));
  CHECK_FALSE(demand.on_cell(kStart + milliseconds(1), 5, 0, 100));
  CHECK(demand.on_cell(kStart + milliseconds(1), 5, 1, 100));
  demand.accept(5);
  CHECK_FALSE(demand.is_wanted(5));
  CHECK_FALSE(demand.next(kStart + milliseconds(10)));
  const auto second = demand.next(kStart + milliseconds(25));
  REQUIRE(second);
  CHECK(second->wants == Wants{{6, 1, 3}, {9, 1, 3}});
  CHECK(second->lost_cells == 4);
  CHECK(second->delay_us == 1000);
  CHECK_FALSE(demand.next(kStart + milliseconds(50)));
  CHECK(demand.next(kStart + milliseconds(70)));
  demand.forget(6);
  demand.forget(9);
  CHECK_FALSE(demand.next(kStart + milliseconds(400)));
}

TEST_CASE("a host that wants nothing tells the sender twice a second that it is there") {
  Demand demand({.units = 100, .cells = 2});
  const auto ask = demand.next(kStart);
  REQUIRE(ask);
  CHECK((ask->wants.empty() && !ask->done));
  CHECK_FALSE(demand.next(kStart + milliseconds(499)));
  CHECK(demand.next(kStart + milliseconds(500)));
}

TEST_CASE("cells that only others asked for are kept, in a limited room and for a second") {
  Demand demand({.units = 3000, .cells = 2});
  CHECK_FALSE(demand.on_cell(kStart, 50, 0, 100));
  CHECK_FALSE(demand.needs(50, 0));
  CHECK(demand.needs(50, 1));
  // Only the missing cell is asked for.
  demand.want(50);
  const auto ask = demand.next(kStart);
  REQUIRE(ask);
  CHECK(ask->wants == Wants{{50, 1, 2}});
  CHECK(demand.on_cell(kStart, 50, 1, 100));
  demand.accept(50);
  // A whole unit of others is verified, too.
  CHECK_FALSE(demand.on_cell(kStart, 51, 1, 100));
  CHECK(demand.on_cell(kStart, 51, 0, 100));
  demand.accept(51);
  for (std::uint32_t unit = 0; unit < Demand::kOthersMax + 50; ++unit) {
    CHECK(demand.needs(unit, 0) == (unit < Demand::kOthersMax));
    CHECK_FALSE(demand.on_cell(kStart, unit, 0, 100));
  }
  CHECK(demand.drop_old(kStart + milliseconds(900)).empty());
  CHECK(demand.drop_old(kStart + milliseconds(1001)).size() == Demand::kOthersMax);
  CHECK(demand.needs(2000, 0));
  CHECK_FALSE(demand.needs(3000, 0));
  CHECK_FALSE(demand.needs(0, 2));
}

TEST_CASE("a wanted unit whose bytes are wrong is asked for again") {
  Demand demand({.units = 10, .cells = 1});
  demand.want(3);
  REQUIRE(demand.next(kStart));
  CHECK(demand.on_cell(kStart + milliseconds(1), 3, 0, 100));
  demand.reject(3);
  CHECK(demand.is_wanted(3));
  const auto again = demand.next(kStart + milliseconds(30));
  REQUIRE(again);
  CHECK(again->wants == Wants{{3, 1, 1}});
}

/// A Source sends an image from memory, by a thread of its own.
class Source {
 public:
  explicit Source(std::size_t bytes, const Address& at = {kLoopback, 0}) : image_(bytes) {
    Prng prng(9);
    for (std::byte& each : image_) each = static_cast<std::byte>(prng.next());
    options_.group = secret_of(1);
    options_.own = at;
    options_.to = {0xefff4d04, 47004};
    options_.idle = std::chrono::seconds(2);
    options_.read = [this](std::uint64_t offset, MutableByteSpan out) -> Status {
      if (dies_) return fail(Code::kDataLost, "test");
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      return Status();
    };
    manifest_ = std::make_unique<Manifest>(*Manifest::compute(bytes, options_.read));
    options_.on_ready = [this](const Address& own) { ready_.set_value(own); };
    thread_ = std::thread([this] {
      SystemClock clock;
      static_cast<void>(send(options_, *manifest_, clock));
    });
    address_ = ready_.get_future().get();
  }
  ~Source() { join(); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Waits for the sender's end: it ends without receivers.
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// From now on, the sender ends at the first unit of the image that it would send.
  void die() { dies_ = true; }
  const Address& address() const { return address_; }
  SourceOptions fetch_options() const {
    SourceOptions options;
    options.group = secret_of(1);
    options.from = address_;
    options.own = {kLoopback, 0};
    options.root = manifest_->root();
    options.by_unicast = true;
    return options;
  }
  bool is_right(std::uint64_t offset, ByteSpan bytes) const {
    return std::ranges::equal(bytes, ByteSpan(image_).subspan(offset, bytes.size()));
  }

 private:
  std::vector<std::byte> image_;
  std::atomic<bool> dies_{false};
  SendOptions options_;
  std::unique_ptr<Manifest> manifest_;
  std::promise<Address> ready_;
  Address address_;
  std::thread thread_;
};

TEST_CASE("any part of a sender's image is read, also by several threads, and again") {
  constexpr std::size_t kBytes = 600 * kUnitBytes + 77;
  Source source(kBytes);
  SystemClock clock;
  const auto fetcher = Fetcher::open(source.fetch_options(), clock);
  REQUIRE(fetcher);
  CHECK((*fetcher)->image_bytes() == kBytes);
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);  // the main thread alone uses Catch2's macros
  for (std::size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      Prng prng(i / 2);  // pairs of threads read the same parts
      std::vector<std::byte> bytes(5 * kUnitBytes);
      for (int n = 0; n < 50; ++n) {
        const std::uint64_t length = 1 + prng.below(bytes.size());
        const std::uint64_t offset = prng.below(kBytes - length + 1);
        const MutableByteSpan out = MutableByteSpan(bytes).first(length);
        if ((*fetcher)->read(offset, out) && source.is_right(offset, out)) ++right[i];
      }
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(right == std::vector<int>(4, 50));
  std::vector<std::byte> end(77);
  CHECK((*fetcher)->read(kBytes - 77, end));
  CHECK(source.is_right(kBytes - 77, end));
  CHECK_FALSE((*fetcher)->read(kBytes - 76, end));
}

TEST_CASE("an image of another root is not read, and a sender that has gone is an error") {
  Source source(3 * kUnitBytes);
  SystemClock clock;
  SourceOptions options = source.fetch_options();
  options.root.bytes.front() ^= std::byte{1};
  const auto wrong = Fetcher::open(options, clock);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Code::kCorrupt);
  options = source.fetch_options();
  options.patience = std::chrono::seconds(1);
  source.join();
  const auto gone = Fetcher::open(options, clock);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code == Code::kDeadline);
}

/// Reads the image's first bytes again and again, until it gets them, for 10 s at most.
bool reads_in_time(Fetcher& fetcher, const Source& source) {
  std::vector<std::byte> bytes(kUnitBytes + 5);
  for (int tries = 0; tries < 100; ++tries) {
    if (fetcher.read(3, bytes)) return source.is_right(3, bytes);
    std::this_thread::sleep_for(milliseconds(100));
  }
  return false;
}

TEST_CASE("reads fail at once while the sender is dead, and its successor serves them") {
  constexpr std::size_t kBytes = 40 * kUnitBytes;
  auto source = std::make_unique<Source>(kBytes);
  const Address address = source->address();
  SystemClock clock;
  SourceOptions options = source->fetch_options();
  options.patience = std::chrono::seconds(1);
  const auto fetcher = Fetcher::open(options, clock);
  REQUIRE(fetcher);
  std::vector<std::byte> bytes(kUnitBytes);
  CHECK((*fetcher)->read(0, bytes));
  source->die();
  CHECK_FALSE((*fetcher)->read(kUnitBytes, bytes));
  // A late answer to the first read may have come meanwhile.
  CHECK_FALSE((*fetcher)->read(kUnitBytes, bytes));
  const Time begun = clock.now();
  for (int i = 0; i < 20; ++i) {
    const Status failed = (*fetcher)->read(2 * kUnitBytes, bytes);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == Code::kDeadline);
  }
  CHECK(clock.now() - begun < options.patience);
  source.reset();
  source = std::make_unique<Source>(kBytes, address);
  CHECK(reads_in_time(**fetcher, *source));
}

TEST_CASE("a fetcher of an image of a known length waits for no sender, and finds it later") {
  constexpr std::size_t kBytes = 40 * kUnitBytes;
  auto source = std::make_unique<Source>(kBytes);
  SourceOptions options = source->fetch_options();
  const Address address = source->address();
  source.reset();  // it ends without receivers
  options.patience = std::chrono::seconds(1);
  SystemClock clock;
  const Time begun = clock.now();
  const auto fetcher = Fetcher::open_later(options, kBytes, clock);
  REQUIRE(fetcher);
  CHECK((*fetcher)->image_bytes() == kBytes);
  CHECK(clock.now() - begun < options.patience);
  std::vector<std::byte> bytes(kUnitBytes);
  const Status failed = (*fetcher)->read(0, bytes);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Code::kDeadline);
  source = std::make_unique<Source>(kBytes, address);
  CHECK(reads_in_time(**fetcher, *source));
  CHECK_FALSE(Fetcher::open_later(options, 0, clock));
}

TEST_CASE("a fetcher that ends is gone for the sender, which waits for others as long as before") {
  Source source(3 * kUnitBytes);  // its idle time is 2 s
  SystemClock clock;
  const auto begun = clock.now();
  {
    const auto fetcher = Fetcher::open(source.fetch_options(), clock);
    REQUIRE(fetcher);
  }
  source.join();
  CHECK(clock.now() - begun > milliseconds(1900));
}

}  // namespace
}  // namespace stdchk::multicast
