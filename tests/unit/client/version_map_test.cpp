#include "client/read/version_map.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr FileId kFile{7};

/// A MapStore whose requests the test answers.
struct Scene {
  struct Call {
    msg::Request request;
    MapStore::Callback done;
    MapStore::Callback late;
  };
  Shared shared;
  std::vector<Call> calls;
  MapStore maps{shared, [] { return ClientId{3}; },
                [this](msg::Request request, MapStore::Callback done, MapStore::Callback late) {
                  calls.push_back({std::move(request), std::move(done), std::move(late)});
                },
                [] {}};

  /// Answers the oldest request for a page with one of `count` chunks.
  void answer(std::uint32_t count, bool late = false) {
    Call call = std::move(calls.front());
    calls.erase(calls.begin());
    const auto& asked = std::get<msg::GetMap>(call.request);
    msg::GetMap::Reply reply;
    reply.attributes.id = kFile;
    reply.attributes.version = 4;
    reply.slice_count = count;
    reply.page.slices = {{asked.first_slice * 100, 100, 0, 0}};
    reply.page.chunks = {{{}, 100, 1, {{BenefactorId{1}, asked.first_slice * 256}}}};
    if (late) call.done(tl::unexpected(rpc::Failure{{Code::kManagerLost, 0, "test"}, {}, {}}));
    (late ? call.late : call.done)(std::move(reply));
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

TEST_CASE("a pin that is given when nobody waits for the map any more goes at once") {
  Scene scene;
  VersionMapPtr late = scene.maps.open(kFile);
  SECTION("nobody else reads the file") {
    scene.answer(1, true);
    CHECK(late->error.has_value());
    CHECK(scene.unpins() == 1);
  }
  SECTION("another one reads it") {
    VersionMapPtr other = scene.maps.open(kFile);
    std::swap(scene.calls[0], scene.calls[1]);
    scene.answer(1);
    REQUIRE(other->complete);
    scene.answer(1, true);
    CHECK(scene.unpins() == 0);
    other.reset();
    CHECK(scene.unpins() == 1);
  }
}

TEST_CASE("a file is shared from the manager's word until its last map is gone") {
  Scene scene;
  VersionMapPtr map = scene.maps.open(kFile);
  scene.maps.set_shared(kFile, true);
  CHECK_FALSE(scene.maps.is_shared(kFile));  // no pin yet
  scene.answer(1);
  CHECK_FALSE(scene.maps.is_shared(kFile));
  scene.maps.set_shared(kFile, true);
  CHECK(scene.maps.is_shared(kFile));
  SECTION("the manager takes its word back") { scene.maps.set_shared(kFile, false); }
  SECTION("the map goes") {
    map.reset();
    scene.maps.collect();
  }
  SECTION("another manager has forgotten the pins") { scene.maps.forget_pins(); }
  CHECK_FALSE(scene.maps.is_shared(kFile));
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
