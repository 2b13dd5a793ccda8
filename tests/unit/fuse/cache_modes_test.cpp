#include "fuse/cache_modes.h"

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::mount;

namespace {
constexpr FileId kFolder{5};
}

TEST_CASE("An unknown series goes around the page cache") {
  CacheModes modes;
  CHECK_FALSE(modes.choose_cached(kFolder, "app.N0.T1"));
}

TEST_CASE("A series whose last image had small writes goes through the page cache") {
  CacheModes modes;
  modes.record_calls(kFolder, "app.N0.T1", 1000, 1000 * 4096);
  CHECK(modes.choose_cached(kFolder, "app.N3.T2"));
  CHECK_FALSE(modes.choose_cached(kFolder, "other.N3.T2"));
  CHECK_FALSE(modes.choose_cached(FileId{6}, "app.N3.T2"));
}

TEST_CASE("A series that turns to large writes is found out after a number of opens") {
  CacheModes modes;
  modes.record_calls(kFolder, "app.N0.T1", 1000, 1000 * 4096);
  std::uint32_t cached = 0;
  while (modes.choose_cached(kFolder, "app.N0.T2")) cached++;
  CHECK(cached == CacheModes::kCachedOpensMax);
  modes.record_calls(kFolder, "app.N0.T2", 100, 100 << 20);
  CHECK_FALSE(modes.choose_cached(kFolder, "app.N0.T3"));
}

TEST_CASE("A file of few writes says nothing about its series") {
  CacheModes modes;
  modes.record_calls(kFolder, "app.N0.T1", CacheModes::kCallsMin - 1, 10);
  CHECK_FALSE(modes.choose_cached(kFolder, "app.N0.T2"));
}
