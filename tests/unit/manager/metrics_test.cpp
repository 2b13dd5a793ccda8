#include "manager/service/metrics.h"

#include <algorithm>
#include <string>

#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

/// The value of the sample, which is "name" or "name{labels}" at the beginning of a line.
double value(const std::string& text, const std::string& sample) {
  const auto at = text.find("\n" + sample + " ");
  INFO(sample);
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(at + sample.size() + 2));
}

std::string shown(World& world) {
  metrics::Exposition out;
  ServiceMetrics(*world.service, world.journal).collect(out);
  return out.text();
}

}  // namespace

TEST_CASE("requests are counted by kind, with their times and errors") {
  World world;
  world.start();
  TestClient client(world, "client");
  CHECK_FALSE(client.lookup("absent").has_value());
  CHECK_FALSE(client.lookup("absent").has_value());
  const std::string text = shown(world);
  CHECK(value(text, "stdchk_manager_request_seconds_count{kind=\"lookup\"}") == 2);
  CHECK(value(text, "stdchk_manager_request_errors_total{kind=\"lookup\",error=\"NotFound\"}") ==
        2);
  CHECK(value(text, "stdchk_manager_request_seconds_count{kind=\"register client\"}") == 1);
  CHECK(text.find("kind=\"commit\"") == std::string::npos);
  CHECK(value(text, "stdchk_requests_total") == 3);
}

TEST_CASE("what writers were given counts until it is committed or given back") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  CHECK(value(shown(world), "stdchk_granted_bytes") == 0);
  const auto opened = client.create("a", limits::kMiB);
  REQUIRE(opened);
  std::uint64_t granted = 0;
  for (const Grant& grant : opened->grants) granted += grant.length;
  std::string text = shown(world);
  CHECK(value(text, "stdchk_grants") == static_cast<double>(opened->grants.size()));
  CHECK(value(text, "stdchk_granted_bytes") == static_cast<double>(granted));
  CHECK(value(text, "stdchk_sessions") == 1);
  REQUIRE(client.call(TestClient::commit_of(opened->session, opened->grants[0], 0, 1000, 7)));
  text = shown(world);
  CHECK(value(text, "stdchk_granted_bytes") == static_cast<double>(granted - extent_bytes(1000)));
  CHECK(value(text, "stdchk_logical_bytes") == 1000);
  CHECK(value(text, "stdchk_at_risk") == 1);
}
