#include "client/engine/engine.h"

#include "tests/unit/client/pool.h"

namespace stdchk::client::test {
namespace {

/// An OwnEngine is an engine on a reactor that the test turns.
struct OwnEngine {
  explicit OwnEngine(Pool& pool) : endpoint(pool.fabric.make_endpoint("own", pool.clock)) {
    reactor.add(*endpoint);
    Engine::Config config;
    config.manager_address = "mem:manager";
    config.window_bytes = 4 * kChunk;
    engine = std::make_unique<Engine>(reactor, *endpoint,
                                      std::vector<transport::Endpoint*>{endpoint.get()}, executor,
                                      files, std::move(config));
    engine->start();
    REQUIRE(turn_until([&] {
      const Lock lock(engine->shared().mutex);
      return engine->registration().ready->done();
    }));
  }
  ~OwnEngine() {
    engine.reset();
    reactor.remove(*endpoint);
  }
  bool turn_until(const std::function<bool()>& good) {
    const Time end = clock.now() + std::chrono::seconds(5);
    while (!good() && clock.now() < end) reactor.run_once(std::chrono::milliseconds(1));
    return good();
  }

  SystemClock clock;
  Reactor reactor{clock};
  std::unique_ptr<transport::Endpoint> endpoint;
  InlineExecutor executor;
  FileThreads files;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("a call is sent although the reactor's queue was full when it was made") {
  Pool pool(1, 16 << 20, Naming::kOff);
  OwnEngine own(pool);
  bool answered = false;
  while (own.reactor.post([] {}).has_value()) {
  }
  {
    const Lock lock(own.engine->shared().mutex);
    own.engine->call(msg::StatPool{}, [&](const rpc::Answer&) { answered = true; });
  }
  REQUIRE(own.turn_until([&] { return answered; }));
}

}  // namespace stdchk::client::test
