#include "client/read/near_places.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr FileId kFile{7};
constexpr Extent kNear{BenefactorId{5}, 4096};

/// A NearPlaces whose requests the test answers, and a map of a file that several hosts read.
struct Scene {
  struct Call {
    msg::Request request;
    std::function<void(rpc::Answer)> done;
  };
  Scene() {
    map = maps.open(kFile);
    msg::GetMap::Reply reply;
    reply.attributes.id = kFile;
    reply.attributes.version = 4;
    reply.shared = true;
    reply.slice_count = 0;
    answer(std::move(reply));
    near.set_manager_answers(true);
  }
  void ask() {
    near.find(*map, 65536, [this](std::optional<Extent> place) { found.push_back(place); });
  }
  void answer(rpc::Answer reply) {
    const Call call = std::move(calls.front());
    calls.erase(calls.begin());
    call.done(std::move(reply));
  }

  Shared shared;
  std::vector<Call> calls;
  MapStore maps{shared, [] { return ClientId{3}; },
                [this](msg::Request request, MapStore::Callback done, MapStore::Callback) {
                  calls.push_back({std::move(request), std::move(done)});
                },
                [] {}};
  NearPlaces near{{shared, maps, [] { return ClientId{3}; },
                   [this](msg::Request request, std::function<void(rpc::Answer)> done) {
                     calls.push_back({std::move(request), std::move(done)});
                   }}};
  VersionMapPtr map;
  std::vector<std::optional<Extent>> found;
};

}  // namespace

TEST_CASE("a copy on this host is asked for by the place in the version, and read where it is") {
  Scene scene;
  REQUIRE(scene.near.may_ask(*scene.map));
  scene.ask();
  CHECK(std::get<msg::FindNear>(scene.calls.front().request) ==
        msg::FindNear{ClientId{3}, kFile, 4, 65536});
  CHECK(scene.found.empty());
  scene.answer(msg::Reply{msg::FindNear::Reply{kNear.benefactor, kNear.offset, false}});
  REQUIRE(scene.found.size() == 1);
  CHECK(scene.found.front() == kNear);
  CHECK(scene.near.may_ask(*scene.map));
}

TEST_CASE("without a copy on this host the reader goes on with the others") {
  Scene scene;
  scene.ask();
  SECTION("there is none now") {
    scene.answer(msg::Reply{msg::FindNear::Reply{}});
    CHECK(scene.near.may_ask(*scene.map));
  }
  SECTION("nobody else reads the file any more") {
    scene.answer(msg::Reply{msg::FindNear::Reply{{}, 0, true}});
    CHECK_FALSE(scene.near.may_ask(*scene.map));
  }
  SECTION("the manager did not answer") {
    scene.answer(tl::unexpected(rpc::Failure{{Code::kManagerLost, 0, "test"}, {}, {}}));
    CHECK(scene.near.may_ask(*scene.map));
  }
  REQUIRE(scene.found.size() == 1);
  CHECK_FALSE(scene.found.front());
}

TEST_CASE("nobody waits for a manager that is silent, and a late answer changes nothing") {
  Scene scene;
  scene.ask();
  scene.near.set_manager_answers(false);
  REQUIRE(scene.found.size() == 1);
  CHECK_FALSE(scene.found.front());
  CHECK_FALSE(scene.near.may_ask(*scene.map));
  scene.answer(msg::Reply{msg::FindNear::Reply{kNear.benefactor, kNear.offset, false}});
  CHECK(scene.found.size() == 1);
  scene.near.set_manager_answers(true);
  CHECK(scene.near.may_ask(*scene.map));
}

}  // namespace stdchk::client
