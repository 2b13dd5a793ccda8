// Tests how figures get from a daemon's own thread to the endpoint's.
#include <atomic>
#include <chrono>
#include <thread>

#include "core/runtime/ask_reactor.h"
#include "metrics/daemon.h"
#include "tests/support/catch.h"

namespace stdchk::metrics {
namespace {

using namespace std::chrono_literals;

/// A reactor that runs until the end of the test.
struct Running {
  ~Running() {
    reactor.stop();
    thread.join();
  }
  SystemClock clock;
  Reactor reactor{clock};
  std::thread thread{[this] { reactor.run(); }};
};

}  // namespace

TEST_CASE("a question is answered on the reactor's thread") {
  Running running;
  const auto answer =
      ask_reactor<std::thread::id>(running.reactor, 10s, [] { return std::this_thread::get_id(); });
  REQUIRE(answer.has_value());
  CHECK(*answer == running.thread.get_id());
}

TEST_CASE("a question that is not answered in time is not begun later") {
  SystemClock clock;
  Reactor reactor(clock);
  std::atomic<bool> asked{false};
  const auto answer = ask_reactor<int>(reactor, 30ms, [&] {
    asked = true;
    return 1;
  });
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().code == Code::kDeadline);
  reactor.run_once(0ms);
  CHECK_FALSE(asked);
}

TEST_CASE("who asks a reactor that was stopped does not wait") {
  SystemClock clock;
  Reactor reactor(clock);
  reactor.stop();
  const auto began = std::chrono::steady_clock::now();
  const auto answer = ask_reactor<int>(reactor, 10s, [] { return 1; });
  REQUIRE_FALSE(answer.has_value());
  CHECK(answer.error().code == Code::kCancelled);
  CHECK(std::chrono::steady_clock::now() - began < 5s);
}

TEST_CASE("a daemon's page has its version, its process, and what its reactor's thread tells") {
  Running running;
  const auto page = page_of("stdchk-manager", running.reactor, [](Exposition& to) {
    to.gauge("stdchk_something", "Of the daemon.", std::uint64_t{3});
  });
  const auto text = page();
  REQUIRE(text.has_value());
  CHECK(text->find("\nstdchk_build_info{version=\"" + std::string(version()) +
                   "\",program=\"stdchk-manager\"} 1\n") != std::string::npos);
  CHECK(text->find("\nprocess_cpu_seconds_total ") != std::string::npos);
  CHECK(text->ends_with("\nstdchk_something 3\n"));
}

TEST_CASE("no endpoint when no flag asks for one") {
  const auto none = serve({}, [] { return Result<std::string>("text"); });
  REQUIRE(none.has_value());
  CHECK(*none == nullptr);
}

}  // namespace stdchk::metrics
