#include "client/manager_client.h"

#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "tests/support/catch.h"
#include "transport/mem/mem.h"

namespace stdchk::client {
namespace {

/// A manager that answers registrations only.
struct FakeManager : transport::AcceptHandler, rpc::PeerHandler {
  explicit FakeManager(Reactor& turns) : reactor(turns) {}
  void on_accept(std::unique_ptr<transport::Link> link) override {
    peer = std::make_unique<rpc::Peer>(reactor, std::move(link), *this);
  }
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time, rpc::Responder respond) override {
    if (const auto* wanted = std::get_if<msg::RegisterClient>(&request.body)) {
      told.push_back(wanted->newest_epoch);
      return respond(msg::Reply(msg::RegisterClient::Reply{ClientId{100}, epoch, {}, {}}));
    }
    respond(msg::Reply(msg::ClientHeartbeat::Reply{}));
  }
  void on_closed(rpc::Peer&, Error) override { peer.reset(); }

  Reactor& reactor;
  std::unique_ptr<rpc::Peer> peer;
  Epoch epoch{256};
  std::vector<Epoch> told;
};

struct Listener : ManagerListener {
  void on_registered(const msg::RegisterClient::Reply& reply, bool) override {
    epochs.push_back(reply.epoch);
  }
  void on_invalidate(const msg::Invalidate&) override {}
  std::vector<Epoch> epochs;
};

}  // namespace

TEST_CASE("a client refuses a manager of an earlier epoch, and tells it of the later one") {
  ManualClock clock;
  Reactor reactor{clock};
  transport::mem::Fabric fabric;
  const auto at = fabric.make_endpoint("manager", clock);
  const auto own = fabric.make_endpoint("client", clock);
  reactor.add(*at);
  reactor.add(*own);
  FakeManager manager(reactor);
  REQUIRE(at->listen(manager));
  Listener listener;
  {
    ManagerClient client(reactor, *own, {"mem:manager", {}}, listener);
    client.start();
    const auto pass = [&](int tenths) {
      for (int i = 0; i < tenths; ++i) {
        for (int turn = 0; turn < 20; ++turn) reactor.run_once(Duration::zero());
        clock.advance(std::chrono::milliseconds(100));
      }
    };
    pass(2);
    CHECK(listener.epochs == std::vector<Epoch>{Epoch{256}});
    manager.epoch = Epoch{2};
    manager.peer.reset();
    pass(30);
    CHECK(manager.told.size() > 2);
    CHECK(manager.told.back() == Epoch{256});
    CHECK(listener.epochs.size() == 1);
    CHECK_FALSE(client.registered());
    CHECK(client.last_error().code == Code::kFenced);
    manager.epoch = Epoch{257};
    pass(30);
    CHECK(listener.epochs == std::vector<Epoch>{Epoch{256}, Epoch{257}});
    CHECK(client.registered());
  }
  manager.peer.reset();
  reactor.remove(*at);
  reactor.remove(*own);
}

}  // namespace stdchk::client
