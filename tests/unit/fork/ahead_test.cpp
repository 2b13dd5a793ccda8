#include <string>

#include "core/base/clock.h"
#include "fork/pager/run_detector.h"
#include "fork/pager/touch_order.h"
#include "tests/support/catch.h"

namespace stdchk::pager {
namespace {

TEST_CASE("a run is fetched in windows that double up to the limit") {
  RunDetector runs(4, 64);
  CHECK(runs.touched(0) == 4);
  CHECK(runs.touched(4) == 8);
  CHECK(runs.touched(12) == 16);
  CHECK(runs.touched(28) == 32);
  CHECK(runs.touched(60) == 64);
  CHECK(runs.touched(124) == 64);
}

TEST_CASE("a clone that jumps gets the least") {
  RunDetector runs(4, 64);
  Prng prng(1);
  for (int i = 0; i < 100; ++i) CHECK(runs.touched(1'000'000 * prng.below(1000)) == 4);
}

TEST_CASE("threads that read several parts of an image have a run each") {
  RunDetector runs(4, 64);
  for (std::uint64_t part = 0; part < RunDetector::kRuns; ++part) {
    CHECK(runs.touched(part * 10000) == 4);
  }
  for (std::uint64_t part = 0; part < RunDetector::kRuns; ++part) {
    CHECK(runs.touched(part * 10000 + 4) == 8);
  }
}

TEST_CASE("an order tells what followed a block") {
  TouchOrder order;
  order.record({100, 4});
  order.record({7, 1});
  order.record({50, 2});
  CHECK(order.following(102, 2) == std::vector<BlockRange>{{7, 1}, {50, 2}});
  CHECK(order.following(7, 5) == std::vector<BlockRange>{{50, 2}});
  CHECK(order.following(51, 5).empty());
  CHECK(order.following(104, 5).empty());
  CHECK(order.following(0, 5).empty());
}

TEST_CASE("an order that is encoded and decoded is the same") {
  Prng prng(3);
  TouchOrder order;
  for (int i = 0; i < 500; ++i) order.record({prng.below(60000), 1 + prng.below(8)});
  const std::string text = order.encode();
  const auto again = TouchOrder::decode(text, 60008);
  REQUIRE(again);
  CHECK(again->size() == 500);
  CHECK(again->encode() == text);
}

TEST_CASE("an order of very many touches is cut to its limits") {
  TouchOrder order;
  for (std::uint64_t i = 0; i < 3 * TouchOrder::kRangesMax; ++i)
    order.record({i * 977 % 100000, 1});
  CHECK(order.size() == TouchOrder::kRangesMax);
  const std::string text = order.encode();
  CHECK(text.size() <= TouchOrder::kBytesMax);
  CHECK(TouchOrder::decode(text, 100000));
}

TEST_CASE("an order that lies outside the image, or is no order, is refused") {
  TouchOrder order;
  order.record({10, 2});
  const std::string text = order.encode();
  CHECK(TouchOrder::decode(text, 12));
  CHECK_FALSE(TouchOrder::decode(text, 11));
  CHECK_FALSE(TouchOrder::decode("", 100));
  CHECK_FALSE(TouchOrder::decode("stdchk.order.2\n", 100));
  CHECK_FALSE(TouchOrder::decode(text.substr(0, text.size() - 1), 100));
  CHECK_FALSE(TouchOrder::decode(text + std::string(TouchOrder::kBytesMax, '\0'), 100));
  Prng prng(5);
  for (int i = 0; i < 5000; ++i) {
    std::string bad = text.substr(0, 15);
    for (std::uint64_t j = prng.below(30); j > 0; --j)
      bad.push_back(static_cast<char>(prng.next()));
    const auto decoded = TouchOrder::decode(bad, 1000);
    if (decoded) CHECK(TouchOrder::decode(decoded->encode(), 1000));
  }
}

}  // namespace
}  // namespace stdchk::pager
