#include "client/net/manager_client.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "tests/support/catch.h"
#include "transport/mem/mem.h"

namespace stdchk::client {
namespace {

/// A manager that answers registrations, and requests for attributes, opens and resumed sessions.
struct FakeManager : transport::AcceptHandler, rpc::PeerHandler {
  explicit FakeManager(Reactor& turns) : reactor(turns) {}
  void on_accept(std::unique_ptr<transport::Link> link) override {
    peer = std::make_unique<rpc::Peer>(reactor, std::move(link), *this);
  }
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time, rpc::Responder respond) override {
    if (mute) return held.push_back(std::move(respond));
    if (const auto* wanted = std::get_if<msg::RegisterClient>(&request.body)) {
      told.push_back(wanted->newest_epoch);
      return respond(msg::Reply(msg::RegisterClient::Reply{number, epoch, {}, {}}));
    }
    if (msg::may_ask_again(msg::kind_of(request.body))) {
      return std::visit([&](const auto& one) { answer_own(one, std::move(respond)); },
                        request.body);
    }
    if (const auto* close = std::get_if<msg::CloseSession>(&request.body)) {
      closed.push_back(close->session);
      return respond(msg::Reply(msg::CloseSession::Reply{}));
    }
    if (const auto* remove = std::get_if<msg::Remove>(&request.body)) {
      asked_as.push_back(remove->client);
      return respond(msg::Reply(msg::Remove::Reply{}));
    }
    if (const auto* resume = std::get_if<msg::ResumeSession>(&request.body)) {
      asked_as.push_back(resume->client);
      return respond(msg::Reply(msg::ResumeSession::Reply{}));
    }
    respond(msg::Reply(msg::ClientHeartbeat::Reply{}));
  }
  void on_closed(rpc::Peer&, Error) override { peer.reset(); }
  template <class M>
  void answer_own(const M& request, rpc::Responder respond) {
    bool known = !ended;
    if constexpr (requires { request.client; }) {
      asked_as.push_back(request.client);
      known = request.client == number;
    }
    ended = false;
    if (known) return respond(msg::Reply(typename M::Reply{}));
    respond(tl::unexpected(rpc::Failure{Error{Code::kFenced, 0, "test"}, {}, {}}));
  }

  Reactor& reactor;
  std::unique_ptr<rpc::Peer> peer;
  bool mute = false;
  bool ended = false;                ///< the client's lease has ended, until a request notices it
  std::vector<rpc::Responder> held;  ///< of requests that are never answered
  Epoch epoch{256};
  ClientId number{100};
  std::vector<Epoch> told;
  std::vector<ClientId> asked_as;
  std::vector<SessionId> closed;
};

struct Listener : ManagerListener {
  void on_registered(const msg::RegisterClient::Reply& reply, bool) override {
    epochs.push_back(reply.epoch);
  }
  void on_invalidate(const msg::Invalidate&) override {}
  std::vector<Epoch> epochs;
};

}  // namespace

namespace {

/// A registered client.
struct Scene {
  Scene() {
    reactor.add(*at);
    reactor.add(*own);
    REQUIRE(at->listen(manager));
    client = std::make_unique<ManagerClient>(reactor, *own,
                                             ManagerClient::Config{"mem:manager", {}}, listener);
    client->start();
    pass(2);
    REQUIRE(listener.epochs == std::vector<Epoch>{Epoch{256}});
  }
  ~Scene() {
    client.reset();
    manager.peer.reset();
    reactor.remove(*at);
    reactor.remove(*own);
  }
  void pass(int tenths) {
    for (int i = 0; i < tenths; ++i) {
      for (int turn = 0; turn < 20; ++turn) reactor.run_once(Duration::zero());
      clock.advance(std::chrono::milliseconds(100));
    }
  }

  ManualClock clock;
  Reactor reactor{clock};
  transport::mem::Fabric fabric;
  const std::unique_ptr<transport::Endpoint> at = fabric.make_endpoint("manager", clock);
  const std::unique_ptr<transport::Endpoint> own = fabric.make_endpoint("client", clock);
  FakeManager manager{reactor};
  Listener listener;
  std::unique_ptr<ManagerClient> client;
};

}  // namespace

TEST_CASE("a client refuses a manager of an earlier epoch, and tells it of the later one") {
  Scene scene;
  scene.manager.epoch = Epoch{2};
  scene.manager.peer.reset();
  scene.pass(30);
  CHECK(scene.manager.told.size() > 2);
  CHECK(scene.manager.told.back() == Epoch{256});
  CHECK(scene.listener.epochs.size() == 1);
  CHECK_FALSE(scene.client->registered());
  CHECK(scene.client->last_error().code == Code::kFenced);
  scene.manager.epoch = Epoch{257};
  scene.pass(30);
  CHECK(scene.listener.epochs == std::vector<Epoch>{Epoch{256}, Epoch{257}});
  CHECK(scene.client->registered());
}

TEST_CASE("what only asks is asked under the number that a manager gives that has come back") {
  Scene scene;
  scene.manager.epoch = Epoch{257};
  scene.manager.number = ClientId{200};
  scene.manager.peer.reset();
  bool good = false;
  scene.client->call(msg::GetAttributes{ClientId{100}, FileId{1}}, std::chrono::seconds(5),
                     [&](const rpc::Answer& answer) { good = answer.has_value(); });
  scene.pass(20);
  CHECK(good);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{200}});
}

TEST_CASE("what only asks goes on when the manager has ended the client's lease") {
  Scene scene;
  scene.manager.number = ClientId{200};
  bool good = false;
  scene.client->call(msg::GetAttributes{ClientId{100}, FileId{1}}, std::chrono::seconds(5),
                     [&](const rpc::Answer& answer) { good = answer.has_value(); });
  scene.pass(20);
  CHECK(good);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{100}, ClientId{200}});
}

namespace {

/// A request of type M that the codec accepts.
template <class M>
M sample() {
  M request;
  if constexpr (requires { request.client; }) request.client = ClientId{100};
  if constexpr (requires { request.at; }) request.at.benefactor = BenefactorId{1};
  return request;
}

/// Calls `visit` with a sample of each repeatable request.
template <std::size_t... I, class Visit>
void for_each_question(std::index_sequence<I...>, const Visit& visit) {
  const auto one = [&]<class M>(const M& request) {
    if constexpr (msg::may_ask_again(M::kKind)) visit(request);
  };
  (one(sample<std::variant_alternative_t<I, msg::AnyRequest>>()), ...);
}

template <class Visit>
void for_each_question(const Visit& visit) {
  for_each_question(std::make_index_sequence<std::variant_size_v<msg::AnyRequest>>{}, visit);
}

}  // namespace

TEST_CASE("every request that changes nothing is asked of the next manager, as the client of now") {
  std::size_t asked = 0;
  for_each_question([&]<class M>(const M& request) {
    CAPTURE(M::kName);
    Scene scene;
    const bool sent = asked++ % 2 == 0;
    bool good = false;
    const auto ask = [&] {
      scene.client->call(request, std::chrono::seconds(10), [&](const rpc::Answer& answer) {
        good = answer.has_value() && std::holds_alternative<typename M::Reply>(*answer);
      });
    };
    scene.manager.mute = sent;
    if (sent) ask();
    scene.pass(1);
    scene.manager.mute = false;
    scene.manager.epoch = Epoch{257};
    scene.manager.number = ClientId{200};
    scene.manager.peer.reset();
    if (!sent) ask();
    scene.pass(20);
    CHECK(good);
    if constexpr (requires { request.client; }) {
      CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{200}});
    }
  });
  CHECK(asked >= 20);
}

TEST_CASE("every request that changes nothing goes on when the manager has ended the lease") {
  for_each_question([&]<class M>(const M& request) {
    CAPTURE(M::kName);
    Scene scene;
    scene.manager.number = ClientId{200};
    scene.manager.ended = true;
    bool good = false;
    scene.client->call(request, std::chrono::seconds(10),
                       [&](const rpc::Answer& answer) { good = answer.has_value(); });
    scene.pass(20);
    CHECK(good);
    CHECK(scene.listener.epochs.size() == 2);
  });
}

TEST_CASE("an open that a manager has not answered is asked of the next one") {
  Scene scene;
  scene.manager.mute = true;
  bool good = false;
  msg::OpenSession open;
  open.client = ClientId{100};
  scene.client->call(open, std::chrono::seconds(5),
                     [&](const rpc::Answer& answer) { good = answer.has_value(); });
  scene.pass(1);
  scene.manager.mute = false;
  scene.manager.epoch = Epoch{257};
  scene.manager.number = ClientId{200};
  scene.manager.peer.reset();
  scene.pass(20);
  CHECK(good);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{200}});
}

TEST_CASE("what leaves something at the manager is answered also after its deadline") {
  Scene scene;
  int lost = 0;
  std::vector<SessionId> late;
  msg::OpenSession open;
  open.client = ClientId{100};
  scene.manager.mute = true;
  scene.client->call(
      open, std::chrono::seconds(2),
      [&](const rpc::Answer& answer) { lost += answer.has_value() ? 0 : 1; }, {},
      [&](const rpc::Answer& answer) {
        late.push_back(std::get<msg::OpenSession::Reply>(answer.value()).session);
      });
  scene.pass(22);
  CHECK(lost == 1);
  REQUIRE(scene.client->registered());
  scene.manager.mute = false;
  SECTION("the manager goes on") {
    REQUIRE_FALSE(scene.manager.held.empty());
    msg::OpenSession::Reply reply;
    reply.session = SessionId{7};
    for (rpc::Responder& each : scene.manager.held) each(msg::Reply(reply));
    scene.pass(10);
    CHECK(late == std::vector{SessionId{7}});
  }
  SECTION("the link was lost meanwhile") {
    scene.manager.peer.reset();
    scene.manager.held.clear();
    scene.pass(20);
    CHECK(late == std::vector{SessionId{}});
  }
  SECTION("another manager knows nothing of it") {
    scene.manager.epoch = Epoch{257};
    scene.manager.number = ClientId{200};
    scene.manager.peer.reset();
    scene.pass(20);
    REQUIRE(scene.client->client() == ClientId{200});
    CHECK(late.empty());
  }
  const std::size_t asked = scene.manager.asked_as.size();
  scene.pass(600);
  CHECK(scene.manager.asked_as.size() == asked);
  CHECK(late.size() <= 1);
  CHECK(lost == 1);
}

TEST_CASE("a change that nobody was sent is asked for under the next number, another one is not") {
  Scene scene;
  const bool sent = GENERATE(true, false);
  const auto ask = [&] {
    scene.client->call(msg::Remove{ClientId{100}, FileId{1}, "a"}, std::chrono::seconds(5),
                       [](const rpc::Answer&) {});
  };
  scene.manager.mute = true;
  if (!sent) {
    scene.manager.peer.reset();
    scene.pass(20);  // the client looks for the manager
    CHECK_FALSE(scene.client->registered());
  }
  ask();
  scene.pass(1);
  scene.manager.mute = false;
  scene.manager.epoch = Epoch{257};
  scene.manager.number = ClientId{200};
  scene.manager.peer.reset();
  scene.pass(20);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{sent ? 100U : 200U}});
}

TEST_CASE("what must wait for something else is sent after that, as what it was, once") {
  Scene scene;
  bool may_go = true;
  int answers = 0;
  scene.manager.mute = true;
  scene.client->call(
      msg::Remove{ClientId{100}, kRootFile, "a", false}, std::chrono::seconds(20),
      [&](const rpc::Answer& answer) { answers += answer.has_value() ? 1 : 0; },
      [&] { return may_go; });
  scene.pass(1);
  CHECK(scene.manager.held.size() == 1);
  may_go = false;
  scene.manager.mute = false;
  scene.manager.epoch = Epoch{257};
  scene.manager.number = ClientId{200};
  scene.manager.peer.reset();
  scene.pass(20);
  scene.client->send_held();
  scene.pass(1);
  CHECK(scene.manager.asked_as.empty());
  may_go = true;
  scene.client->send_held();
  scene.client->send_held();
  scene.pass(1);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{100}});
  CHECK(answers == 1);
}

TEST_CASE("what ends something at the manager arrives, however late") {
  Scene scene;
  scene.manager.mute = true;
  const bool sent = GENERATE(false, true);
  if (!sent) {
    scene.manager.peer.reset();
    scene.pass(20);
    CHECK_FALSE(scene.client->registered());
  }
  int answers = 0;
  scene.client->call(msg::CloseSession{SessionId{7}}, std::chrono::seconds(2),
                     [&](const rpc::Answer&) { ++answers; });
  scene.pass(25);
  CHECK(answers == 1);
  scene.manager.mute = false;
  scene.manager.peer.reset();
  scene.pass(20);
  CHECK(scene.manager.closed == std::vector{SessionId{7}});
  CHECK(answers == 1);
}

TEST_CASE("a session that was to go on with one manager does not go on with the next by itself") {
  Scene scene;
  scene.manager.epoch = Epoch{257};
  scene.manager.number = ClientId{200};
  scene.manager.peer.reset();
  msg::ResumeSession resume;
  resume.client = ClientId{100};
  scene.client->call(resume, std::chrono::seconds(5), [](const rpc::Answer&) {});
  scene.pass(20);
  CHECK(scene.manager.asked_as == std::vector<ClientId>{ClientId{100}});
}

TEST_CASE("a manager is silent when it was looked for again and again, until it answers") {
  Scene scene;
  scene.pass(600);
  CHECK_FALSE(scene.client->silent());
  scene.manager.mute = true;
  scene.pass(200);
  CHECK_FALSE(scene.client->silent());
  scene.pass(70);
  CHECK(scene.client->silent());
  scene.manager.mute = false;
  scene.pass(50);
  CHECK(scene.client->registered());
  CHECK_FALSE(scene.client->silent());
}

TEST_CASE("a client that was stopped itself does not call its manager silent") {
  Scene scene;
  scene.clock.advance(std::chrono::minutes(5));
  CHECK_FALSE(scene.client->silent());
  scene.pass(1);
  CHECK_FALSE(scene.client->silent());
  scene.pass(50);
  CHECK(scene.client->registered());
}

}  // namespace stdchk::client
