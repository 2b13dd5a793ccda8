#include "manager/recovery/log_replicas.h"

#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::uint64_t kRoom = 256 * limits::kKiB;

bool any_says(const std::vector<std::string>& advice, const std::string& words) {
  return std::ranges::any_of(
      advice, [&](const auto& sentence) { return sentence.find(words) != std::string::npos; });
}

struct TestPool : HostsPool {
  explicit TestPool(std::uint64_t room_bytes = kRoom) : HostsPool(1, {"x", "y", "z"}, kArena) {
    for (const auto& each : benefactors) each->keep_log(room_bytes);
    live(1s);
    REQUIRE(status().log_copies == 3);
  }
  msg::StatPool::Reply status() {
    const auto reply = client->call(msg::StatPool{});
    REQUIRE(reply);
    return *reply;
  }
};

}  // namespace

TEST_CASE("a log of small files is begun anew as long as a snapshot fits, and warned of before") {
  TestPool pool;
  CHECK(pool.status().log_advice.empty());
  std::uint64_t needed_bytes = 0;
  std::size_t warned_at = 0;
  std::size_t files = 0;
  for (auto status = pool.status(); status.log_copies > 0; status = pool.status()) {
    needed_bytes = std::max(needed_bytes, status.log_bytes_needed);
    if (warned_at == 0 && any_says(status.log_advice, "before it is full")) warned_at = files;
    pool.write_images(10, 1000);
    files += 10;
    pool.pass(400ms);
    if (files % 20 == 0) pool.live(1s);
    REQUIRE(files < 10000);
  }
  // The snapshot alone took more than three quarters of what a log may have.
  CHECK(needed_bytes > kRoom / 4 * 3);
  CHECK(warned_at > 0);
  CHECK(warned_at < files * 3 / 4);
  const auto full = pool.status();
  CHECK(full.log_full == 3);
  CHECK(full.log_bytes_needed > full.log_bytes_max);
  CHECK(full.log_bytes_max == kRoom);
  CHECK(any_says(full.log_advice, "--log-memory"));
  // A benefactor whose limit was raised gets a log at once.
  for (const auto& each : pool.benefactors) {
    each->disconnect();
    each->connect();
    each->keep_log(4 * kRoom);
  }
  pool.live(7s);  // one that was dropped is left alone for 5 s
  const auto kept = pool.status();
  CHECK(kept.log_copies == 3);
  CHECK(kept.log_full == 0);
  CHECK(kept.log_advice.empty());
}

TEST_CASE("a manager with a standby warns when fewer than three benefactors keep its metadata") {
  TestPool pool;
  CHECK(pool.status().log_advice.empty());
  TestBenefactor& last = *pool.benefactors.back();
  last.disconnect();
  pool.live(16s);
  // Nobody decides by them.
  CHECK(pool.status().log_advice.empty());
  REQUIRE(pool.client->call(msg::FollowManager{"mem:standby", Epoch{}, 0}));
  pool.live(1s);
  const auto two = pool.status();
  CHECK(two.standby_quorum == 2);
  CHECK(two.standby_reached == 2);
  CHECK(any_says(two.log_advice, "start another benefactor"));
  last.connect();
  last.keep_log(kRoom);
  pool.live(2s);
  CHECK(pool.status().log_copies == 3);
  CHECK(pool.status().log_advice.empty());
  // The standby hears nothing of the new list, and loses those that it decides by.
  for (const auto& each : pool.benefactors) {
    if (each.get() != &last) each->disconnect();
  }
  pool.live(16s);
  const auto one = pool.status();
  CHECK(one.standby_quorum == 2);
  CHECK(one.standby_reached == 0);
  CHECK(any_says(one.log_advice, "it would not take over"));
}
