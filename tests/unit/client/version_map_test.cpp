#include "client/version_map.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr FileId kFile{7};

/// A MapStore whose requests wait for an answer.
struct Scene {
  struct Call {
    msg::Request request;
    std::function<void(rpc::Answer)> done;
  };
  Shared shared;
  std::vector<Call> calls;
  MapStore maps{shared, [] { return ClientId{3}; },
                [this](msg::Request request, std::function<void(rpc::Answer)> done) {
                  calls.push_back({std::move(request), std::move(done)});
                },
                [] {}};

  /// The oldest request for a page is answered with one chunk of `count`.
  void answer(std::uint32_t count) {
    Call call = std::move(calls.front());
    calls.erase(calls.begin());
    const auto& asked = std::get<msg::GetMap>(call.request);
    msg::GetMap::Reply reply;
    reply.attributes.id = kFile;
    reply.attributes.version = 4;
    reply.slice_count = count;
    reply.page.slices = {{asked.first_slice * 100, 100, 0, 0}};
    reply.page.chunks = {{{}, 100, 1, {{BenefactorId{1}, asked.first_slice * 256}}}};
    call.done(std::move(reply));
  }
  std::size_t unpins() {
    maps.collect();
    return static_cast<std::size_t>(std::ranges::count_if(
        calls, [](const Call& call) { return std::holds_alternative<msg::Unpin>(call.request); }));
  }
};

}  // namespace

TEST_CASE("a pin that a manager which has come back gave with a later page goes with the map") {
  Scene scene;
  VersionMapPtr map = scene.maps.open(kFile);
  scene.answer(2);
  scene.maps.forget_pins();
  SECTION("it is asked for the second page") {
    scene.maps.load_next(map);
    scene.answer(2);
    REQUIRE(map->complete);
    map.reset();
    CHECK(scene.unpins() == 1);
  }
  SECTION("it is asked for nothing") {
    map.reset();
    CHECK(scene.unpins() == 0);
  }
}

TEST_CASE("a pin that a manager gave whose map was asked of the one before goes with the map") {
  Scene scene;
  VersionMapPtr map = scene.maps.open(kFile);
  scene.maps.forget_pins();
  scene.answer(1);
  REQUIRE(map->complete);
  map.reset();
  CHECK(scene.unpins() == 1);
}

}  // namespace stdchk::client
