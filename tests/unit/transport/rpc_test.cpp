#include "transport/rpc.h"

#include <deque>
#include <optional>

#include "core/base/limits.h"
#include "core/messages/codec.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace std::chrono_literals;

namespace {

/// The messages that a FakeLink has sent, and the answers it is to give. Outlives the link.
struct Script {
  std::vector<msg::Envelope> sent;
  std::deque<Code> refusals;  ///< results of the next sends
  bool connected = true;
  bool destroyed = false;

  const msg::RequestEnvelope& request(std::size_t index) {
    return std::get<msg::RequestEnvelope>(sent.at(index));
  }
  const msg::ReplyEnvelope& reply(std::size_t index) {
    return std::get<msg::ReplyEnvelope>(sent.at(index));
  }
};

class FakeLink final : public transport::Link {
 public:
  explicit FakeLink(Script& script) : script_(script) {}
  ~FakeLink() override { script_.destroyed = true; }
  void set_handler(transport::LinkHandler&) override {}
  bool connected() const override { return script_.connected; }
  Status send(ByteSpan message) override {
    if (!script_.refusals.empty()) {
      const Code code = script_.refusals.front();
      script_.refusals.pop_front();
      return fail(code, "fake");
    }
    script_.sent.push_back(*msg::decode(message));
    return {};
  }
  Status write(std::span<const transport::LocalPiece>, const transport::RemoteKey&, std::uint64_t,
               transport::Operation&) override {
    return fail(Code::kUnsupported, "fake");
  }
  Status read(std::span<const transport::LocalPiece>, const transport::RemoteKey&, std::uint64_t,
              transport::Operation&) override {
    return fail(Code::kUnsupported, "fake");
  }
  bool fence() override { return true; }

 private:
  Script& script_;
};

struct Handler final : rpc::PeerHandler {
  void on_connected(rpc::Peer&) override { ++connected; }
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override {
    requests.push_back(std::move(request));
    deadlines.push_back(deadline);
    responders.push_back(std::move(respond));
    if (doomed != nullptr) doomed->reset();
  }
  void on_notice(rpc::Peer&, msg::Notice notice) override { notices.push_back(std::move(notice)); }
  void on_closed(rpc::Peer&, Error why) override {
    closed = why.code;
    if (doomed != nullptr) doomed->reset();
  }

  int connected = 0;
  std::vector<msg::RequestEnvelope> requests;
  std::vector<Time> deadlines;
  std::vector<rpc::Responder> responders;
  std::vector<msg::Notice> notices;
  std::optional<Code> closed;
  std::unique_ptr<rpc::Peer>* doomed = nullptr;  ///< the next callback destroys this peer
};

struct Fixture {
  Fixture() { make(); }
  void make() {
    auto made = std::make_unique<FakeLink>(script);
    link = made.get();
    peer = std::make_unique<rpc::Peer>(reactor, std::move(made), handler);
  }
  void receive(const msg::Envelope& envelope) {
    std::vector<std::byte> bytes;
    REQUIRE(msg::encode(envelope, bytes).has_value());
    peer->on_message(*link, bytes);
  }
  void advance(Duration by) {
    clock.advance(by);
    reactor.run_once(Duration::zero());
  }
  /// Stores the answer; a second answer fails the test.
  rpc::Peer::Callback keep(std::optional<rpc::Answer>& place) {
    return [&place](rpc::Answer given) {
      REQUIRE_FALSE(place.has_value());
      place = std::move(given);
    };
  }
  static Code code_of(const std::optional<rpc::Answer>& answer) {
    REQUIRE(answer.has_value());
    return answer->has_value() ? Code{} : answer->error().error.code;
  }

  ManualClock clock;
  Reactor reactor{clock};
  Script script;
  Handler handler;
  FakeLink* link = nullptr;
  std::unique_ptr<rpc::Peer> peer;
  std::optional<rpc::Answer> answer;
  std::optional<rpc::Answer> second;
};

msg::Request fence_client(std::uint64_t client) { return msg::FenceClient{ClientId{client}}; }
msg::Reply fenced() { return msg::FenceClient::Reply{true}; }

}  // namespace

TEST_CASE_METHOD(Fixture, "a call is answered by the reply with its number") {
  peer->set_sender(42);
  peer->call(fence_client(1), 5s, keep(answer));
  peer->call(fence_client(2), 5s, keep(second));
  REQUIRE(script.sent.size() == 2);
  CHECK(script.request(0).sender == 42);
  CHECK(script.request(0).deadline_ms == 5000);
  CHECK(script.request(0).body == fence_client(1));
  CHECK(script.request(0).call_id != script.request(1).call_id);
  receive(msg::ReplyEnvelope{script.request(1).call_id, Code{}, 0, 0, "", fenced()});
  CHECK_FALSE(answer.has_value());
  REQUIRE(code_of(second) == Code{});
  CHECK(**second == fenced());
  advance(10s);
  CHECK(code_of(answer) == Code::kDeadline);
  CHECK(reactor.next_timer() == Time::max());
}

TEST_CASE_METHOD(Fixture, "an error comes with its detail and the server's back-off") {
  peer->call(fence_client(1), 5s, keep(answer));
  receive(msg::ReplyEnvelope{script.request(0).call_id, Code::kNoSpace, 28, 250, "full", {}});
  REQUIRE(code_of(answer) == Code::kNoSpace);
  CHECK(answer->error().error.os_errno == 28);
  CHECK(answer->error().detail == "full");
  CHECK(answer->error().retry_after == 250ms);
}

TEST_CASE_METHOD(Fixture, "a late or repeated reply, and one to nobody, change nothing") {
  peer->call(fence_client(1), 1s, keep(answer));
  advance(1s);
  CHECK(code_of(answer) == Code::kDeadline);
  const std::uint64_t call_id = script.request(0).call_id;
  receive(msg::ReplyEnvelope{call_id, Code{}, 0, 0, "", fenced()});
  receive(msg::ReplyEnvelope{call_id + 1000, Code{}, 0, 0, "", fenced()});
  CHECK_FALSE(handler.closed.has_value());
}

TEST_CASE_METHOD(Fixture, "a reply of another kind than its request is malformed") {
  peer->call(fence_client(1), 1s, keep(answer));
  receive(msg::ReplyEnvelope{script.request(0).call_id, Code{}, 0, 0, "", msg::Unpin::Reply{}});
  CHECK(code_of(answer) == Code::kMalformed);
}

TEST_CASE_METHOD(Fixture, "calls made while connecting are sent in order when connected") {
  script.connected = false;
  peer->call(fence_client(1), 5s, keep(answer));
  peer->call(fence_client(2), 5s, keep(second));
  CHECK(script.sent.empty());
  script.connected = true;
  peer->on_connected(*link);
  CHECK(handler.connected == 1);
  REQUIRE(script.sent.size() == 2);
  CHECK(script.request(0).body == fence_client(1));
  CHECK(script.request(1).body == fence_client(2));
}

TEST_CASE_METHOD(Fixture, "a call that never gets connected ends at its deadline") {
  script.connected = false;
  peer->call(fence_client(1), 5s, keep(answer));
  advance(5s);
  CHECK(code_of(answer) == Code::kDeadline);
}

TEST_CASE_METHOD(Fixture, "a congested link loses and reorders nothing") {
  script.refusals = {Code::kWouldBlock, Code::kWouldBlock};
  std::vector<std::optional<rpc::Answer>> answers(10);
  for (std::uint64_t i = 0; i < 10; ++i) peer->call(fence_client(i + 1), 5s, keep(answers[i]));
  CHECK(script.sent.empty());
  advance(limits::kCongestionRetry);  // refused again
  CHECK(script.sent.empty());
  script.refusals = {};
  advance(limits::kCongestionRetry);
  REQUIRE(script.sent.size() == 10);
  for (std::uint64_t i = 0; i < 10; ++i) CHECK(script.request(i).body == fence_client(i + 1));
  peer->call(fence_client(11), 5s, keep(answer));
  CHECK(script.sent.size() == 11);
}

TEST_CASE_METHOD(Fixture, "the outgoing queue is bounded") {
  script.connected = false;
  msg::SetXattr big;
  big.value.assign(limits::kXattrBytesMax, 'x');
  const std::size_t fit = limits::kPeerQueueBytesMax / (limits::kXattrBytesMax + 1024);
  std::size_t busy = 0;
  const auto count = [&busy](rpc::Answer given) {
    if (!given.has_value() && given.error().error.code == Code::kBusy) ++busy;
  };
  for (std::size_t i = 0; i < fit + 100; ++i) peer->call(big, 5s, count);
  CHECK(busy == 0);  // never called from within call()
  reactor.run_once(Duration::zero());
  CHECK(busy >= 90);
  CHECK(busy <= 100);
}

TEST_CASE_METHOD(Fixture, "a lost link answers all calls before on_closed, later ones at once") {
  peer->call(fence_client(1), 5s, [&](rpc::Answer given) {
    CHECK_FALSE(handler.closed.has_value());
    CHECK(given.error().error.code == Code::kPeerLost);
    answer = std::move(given);
    peer->call(fence_client(2), 5s, keep(second));  // sent from within the answer's callback
  });
  peer->on_closed(*link, Error{Code::kPeerLost, 0, "fake"});
  CHECK(handler.closed == Code::kPeerLost);
  CHECK(answer.has_value());
  CHECK_FALSE(second.has_value());
  reactor.run_once(Duration::zero());
  CHECK(code_of(second) == Code::kPeerLost);
  CHECK(peer->notify(msg::Invalidate{}).error().code == Code::kPeerLost);
}

TEST_CASE_METHOD(Fixture, "bytes that are no message close the peer") {
  peer->call(fence_client(1), 5s, keep(answer));
  const std::vector<std::byte> garbage(64, std::byte{0x5A});
  peer->on_message(*link, garbage);
  CHECK(code_of(answer) == Code::kMalformed);
  CHECK(handler.closed == Code::kMalformed);
}

TEST_CASE_METHOD(Fixture, "a request is answered once, now or later") {
  receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)});
  REQUIRE(handler.responders.size() == 1);
  CHECK(handler.requests[0].sender == 9);
  CHECK(handler.deadlines[0] == clock.now() + 3s);
  advance(1s);
  CHECK(script.sent.empty());
  handler.responders[0](fenced());
  REQUIRE(script.sent.size() == 1);
  CHECK(script.reply(0).call_id == 7);
  CHECK(script.reply(0).body == fenced());
  handler.responders.clear();
  CHECK(script.sent.size() == 1);
}

TEST_CASE_METHOD(Fixture, "a responder that is dropped answers that it was") {
  receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)});
  handler.responders.clear();
  REQUIRE(script.sent.size() == 1);
  CHECK(script.reply(0).code == Code::kInternal);
}

TEST_CASE_METHOD(Fixture, "a failure is sent with detail and back-off, rounded up") {
  receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)});
  handler.responders[0](tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{Code::kBusy, 16, "manager"}, "try later", 1500us}));
  CHECK(script.reply(0).code == Code::kBusy);
  CHECK(script.reply(0).os_errno == 16);
  CHECK(script.reply(0).detail == "try later");
  CHECK(script.reply(0).retry_after_ms == 2);
}

TEST_CASE_METHOD(Fixture, "a reply that is too long is answered as such") {
  receive(msg::RequestEnvelope{7, 3000, 9, msg::GetXattrs{}});
  msg::GetXattrs::Reply reply;
  reply.attributes.resize(5, {"user.x", std::string(limits::kXattrBytesMax, 'x')});
  handler.responders[0](msg::Reply(reply));
  CHECK(script.reply(0).code == Code::kTooLarge);
}

TEST_CASE_METHOD(Fixture, "a reply on a congested link is sent later") {
  receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)});
  script.refusals = {Code::kWouldBlock};
  handler.responders[0](fenced());
  CHECK(script.sent.empty());
  advance(limits::kCongestionRetry);
  CHECK(script.sent.size() == 1);
}

TEST_CASE_METHOD(Fixture, "responders may outlive the peer") {
  receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)});
  receive(msg::RequestEnvelope{8, 3000, 9, fence_client(2)});
  peer.reset();
  handler.responders[0](fenced());
  handler.responders.clear();
  CHECK(script.sent.empty());
  CHECK(script.destroyed);
}

TEST_CASE_METHOD(Fixture, "a handler may destroy the peer from within any callback") {
  handler.doomed = &peer;
  SECTION("a request") { receive(msg::RequestEnvelope{7, 3000, 9, fence_client(1)}); }
  SECTION("the end") { peer->on_closed(*link, Error{Code::kPeerLost, 0, "fake"}); }
  SECTION("garbage") { peer->on_message(*link, std::vector<std::byte>(64)); }
  SECTION("an answer") {
    peer->call(fence_client(1), 5s, [&](rpc::Answer) { peer.reset(); });
    receive(msg::ReplyEnvelope{script.request(0).call_id, Code{}, 0, 0, "", fenced()});
  }
  SECTION("a deadline") {
    peer->call(fence_client(1), 5s, [&](rpc::Answer) { peer.reset(); });
    advance(5s);
  }
  SECTION("an answer given because the link is lost") {
    int answers = 0;
    for (int i = 0; i < 3; ++i) {
      peer->call(fence_client(1), 5s, [&](rpc::Answer) {
        ++answers;
        peer.reset();
      });
    }
    peer->on_closed(*link, Error{Code::kPeerLost, 0, "fake"});
    CHECK(answers == 3);
    CHECK_FALSE(handler.closed.has_value());
  }
  CHECK(peer == nullptr);
  CHECK(script.destroyed);
  handler.responders.clear();
  advance(60s);
}

TEST_CASE_METHOD(Fixture, "destroying the peer drops its calls without calling anyone") {
  const auto alive = std::make_shared<int>();
  peer->call(fence_client(1), 5s, [alive](rpc::Answer) { FAIL("was called"); });
  peer.reset();
  CHECK(alive.use_count() == 1);
  CHECK(reactor.next_timer() == Time::max());
}

TEST_CASE_METHOD(Fixture, "closing the peer answers its calls and tells the handler, once") {
  peer->call(fence_client(1), 5s, keep(answer));
  peer->close(Error{Code::kFenced, 0, "test"});
  CHECK(code_of(answer) == Code::kFenced);
  CHECK(handler.closed == Code::kFenced);
  handler.closed.reset();
  peer->on_closed(*link, Error{Code::kPeerLost, 0, "fake"});
  CHECK_FALSE(handler.closed.has_value());
}

TEST_CASE_METHOD(Fixture, "a repeat keeps its number") {
  const std::uint64_t call_id = rpc::next_call_id();
  peer->call_as(call_id, fence_client(1), 5s, keep(answer));
  CHECK(script.request(0).call_id == call_id);
  CHECK(rpc::next_call_id() > call_id);
}

TEST_CASE_METHOD(Fixture, "notices go both ways") {
  msg::Invalidate notice;
  notice.files = {FileId{5}};
  REQUIRE(peer->notify(notice).has_value());
  CHECK(std::get<msg::NoticeEnvelope>(script.sent.at(0)).body == msg::Notice(notice));
  receive(msg::NoticeEnvelope{notice});
  REQUIRE(handler.notices.size() == 1);
  CHECK(handler.notices[0] == msg::Notice(notice));
}
