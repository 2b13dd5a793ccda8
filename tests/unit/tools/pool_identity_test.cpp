#include "tools/containers/pool_identity.h"

#include "tests/support/catch.h"

namespace stdchk::tools {
namespace {

PoolRecord some_pool() {
  PoolRecord pool;
  pool.directory = "/nowhere/state";
  pool.mount = "/nowhere/pool";
  pool.created = "2026-01-31 12:00:00";
  pool.starter = {.pid = 7, .start_ticks = 100};
  pool.starter_boot = "boot";
  return pool;
}

std::string moved(const std::string& folder, const std::string& earlier = "/nowhere/jobs/1.mount") {
  const auto found = folder_in_pool(folder, earlier, "/nowhere/jobs/2.mount");
  return found ? *found : "";
}

}  // namespace

TEST_CASE("a later pool at the same place is another pool") {
  const PoolIdentity first = identity_of(some_pool());
  CHECK(identity_of(some_pool()) == first);
  PoolRecord later = some_pool();
  later.starter.start_ticks = 200;
  CHECK(identity_of(later) != first);
  later = some_pool();
  later.created = "2026-01-31 12:00:01";
  CHECK(identity_of(later) != first);
  later = some_pool();
  later.starter_boot = "next boot";
  CHECK(identity_of(later) != first);
}

TEST_CASE("what a pool learns about its members does not change its identity") {
  PoolRecord pool = some_pool();
  pool.ready = true;
  pool.manager_address = "127.0.0.1:1";
  pool.members.emplace_back();
  CHECK(identity_of(pool) == identity_of(some_pool()));
}

TEST_CASE("the folder of the sets keeps its whole path in the next pool") {
  CHECK(moved("/nowhere/jobs/2.mount/a/job") == "/nowhere/jobs/2.mount/a/job");
  CHECK(moved("/nowhere/jobs/1.mount/a/job") == "/nowhere/jobs/2.mount/a/job");
  CHECK(moved("job") == "/nowhere/jobs/2.mount/job");
  CHECK(moved("a/job/") == "/nowhere/jobs/2.mount/a/job");
  CHECK(moved("../../job") == "/nowhere/jobs/2.mount/job");
  CHECK(folder_in_pool("", "", "/nowhere/pool") == "");
}

TEST_CASE("a folder of the sets that lies in no pool is refused") {
  CHECK(moved("/elsewhere/a/job").empty());
  CHECK(moved("/nowhere/jobs/1.mount/job", "").empty());
  CHECK(moved("/nowhere/jobs/1.mounts/job").empty());
}

TEST_CASE("options of up that hide its answer are refused") {
  CHECK(check_up_words({"--job", "--memory", "25G", "--drain", "/pfs"}));
  CHECK(check_up_words({}));
  for (const char* word : {"--export", "--export=on", "--no-mount", "--help"}) {
    INFO(word);
    CHECK_FALSE(check_up_words({"--memory", "1G", word}));
  }
}

}  // namespace stdchk::tools
