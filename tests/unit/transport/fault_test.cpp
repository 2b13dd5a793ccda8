#include "transport/fault/fault.h"

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "core/base/limits.h"
#include "tests/unit/transport/link_pair.h"

namespace stdchk::transport {
namespace {

using namespace std::chrono_literals;
using fault::FaultEndpoint;

/// Links a faulty endpoint to a reliable one.
struct Pair : LinkPair<FaultEndpoint> {
  Pair()
      : LinkPair([](auto& in, auto& time) {
          return std::make_unique<FaultEndpoint>(in.make_endpoint("a", time), time, 7);
        }) {
    left_memory.fill(std::byte{7});
  }
  void write(Op& op, std::size_t length = 4096) {
    const std::array pieces{piece(0, length)};
    REQUIRE(left.link->write(pieces, right_region->remote_key(), 0, op).has_value());
  }
  std::size_t bits_different() const {
    std::size_t bits = 0;
    for (std::size_t i = 0; i < left_memory.size(); ++i) {
      bits += static_cast<std::size_t>(
          std::popcount(static_cast<unsigned>(left_memory[i] ^ right_memory[i])));
    }
    return bits;
  }
};

Status send(Link& link, std::string_view text) { return link.send(bytes_of(text)); }

TEST_CASE("a failed write moves nothing and says so") {
  Pair pair;
  pair.a->plan().fail_ppm = 1000000;
  Op op;
  pair.write(op);
  REQUIRE(op.completions == 0);
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code::kPeerLost);
  REQUIRE(pair.right_memory == std::array<std::byte, 4096>{});
  REQUIRE(pair.left.link->connected());
}

TEST_CASE("a torn write moves a part and says that it failed") {
  Pair pair;
  pair.a->plan().tear_ppm = 1000000;
  Op op;
  pair.write(op);
  pair.turn();
  REQUIRE(op.code == Code::kPeerLost);
  REQUIRE(pair.right_memory.front() == std::byte{7});
  REQUIRE(pair.right_memory.back() == std::byte{0});
}

TEST_CASE("a late write fails at once, and lands later as it was, if its link still lives") {
  Pair pair;
  pair.a->plan().late_ppm = 1000000;
  pair.a->plan().late_max = 100ms;
  Op op;
  pair.write(op);
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code::kPeerLost);
  pair.left_memory.fill(std::byte{9});
  const bool fenced = GENERATE(false, true);
  if (fenced) {
    for (int i = 0; i < 10 && !pair.right.link->fence(); ++i) pair.turn();
  }
  for (int i = 0; i < 200; ++i) {
    pair.clock.advance(1ms);
    pair.turn();
  }
  REQUIRE(op.completions == 1);
  REQUIRE(pair.a->counts().late == 1);
  REQUIRE(pair.right_memory.back() == std::byte{static_cast<unsigned char>(fenced ? 0 : 7)});
}

TEST_CASE("a flipped write says success, differs in one bit, and leaves its source alone") {
  Pair pair;
  const auto before = pair.left_memory;
  pair.a->plan().flip_ppm = 1000000;
  Op op;
  pair.write(op);
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code{});
  REQUIRE(pair.left_memory == before);
  REQUIRE(pair.bits_different() == 1);
}

TEST_CASE("a delayed operation completes when its time has come") {
  Pair pair;
  pair.a->plan().delay_ppm = 1000000;
  pair.a->plan().delay_max = 100ms;
  std::array<Op, 8> ops;
  for (Op& op : ops) pair.write(op);
  REQUIRE(send(*pair.left.link, "late").has_value());
  REQUIRE(send(*pair.left.link, "later").has_value());
  pair.turn();
  REQUIRE(pair.a->sleep_max() > 0ns);
  REQUIRE(pair.a->sleep_max() <= 100ms);
  for (int i = 0; i < 300; ++i) {
    pair.clock.advance(1ms);
    pair.turn();
  }
  for (const Op& op : ops) REQUIRE((op.completions == 1 && op.code == Code{}));
  REQUIRE(pair.right.messages == std::vector<std::string>{"late", "later"});
}

TEST_CASE("a lost link is heard of on both sides") {
  Pair pair;
  Op op;
  pair.write(op);
  pair.a->drop_links();
  REQUIRE(pair.left.closed == 0);
  pair.turn();
  REQUIRE(op.code == Code::kPeerLost);
  REQUIRE(pair.left.closed == 1);
  REQUIRE(pair.left.code == Code::kPeerLost);
  REQUIRE(pair.right.closed == 1);
  REQUIRE(pair.right_memory == std::array<std::byte, 4096>{});
}

/// A text that begins with ? is a request; ! begins an answer.
fault::MessageKind kind_of(ByteSpan message) {
  if (message.front() == std::byte{'?'}) return fault::MessageKind::kRequest;
  if (message.front() == std::byte{'!'}) return fault::MessageKind::kAnswer;
  return fault::MessageKind::kOther;
}

TEST_CASE("a request is lost with its link before it is received, and so is what waits") {
  Pair pair;
  pair.a->set_kind_of(kind_of);
  pair.a->plan().delay_ppm = 1000000;
  pair.a->plan().delay_max = 100ms;
  REQUIRE(send(*pair.left.link, "waits").has_value());
  pair.a->plan().drop_ppm = 1000000;
  REQUIRE(send(*pair.left.link, "?").has_value());
  pair.clock.advance(1s);
  pair.turn();
  REQUIRE(pair.right.messages.empty());
  REQUIRE(pair.left.closed == 1);
  REQUIRE(pair.right.closed == 1);
  REQUIRE(pair.a->counts().requests_lost == 1);
  REQUIRE(pair.a->counts().others_lost == 1);
  REQUIRE(pair.a->counts().dropped == 1);
}

TEST_CASE("an answer is lost with its link after its request was received") {
  /// Answers at once.
  struct Server final : LinkHandler {
    void on_connected(Link&) override {}
    void on_message(Link& link, ByteSpan) override {
      ++requests;
      (void)send(link, "!");
    }
    void on_closed(Link&, Error) override { ++closed; }
    int requests = 0;
    int closed = 0;
  };
  Pair pair;
  Server server;
  pair.left.link->set_handler(server);
  pair.a->set_kind_of(kind_of);
  pair.a->plan().drop_after_ppm = 1000000;
  REQUIRE(send(*pair.right.link, "?").has_value());
  pair.turn();
  REQUIRE(server.requests == 1);
  REQUIRE(server.closed == 1);
  REQUIRE(pair.right.closed == 1);
  REQUIRE(pair.right.messages.empty());
  REQUIRE(pair.a->counts().answers_lost == 1);
  REQUIRE(pair.a->counts().requests_lost == 0);
}

TEST_CASE("a message that is lost leaves its link alone, and a repeated one comes twice") {
  Pair pair;
  pair.a->set_kind_of(kind_of);
  pair.a->plan().lose_ppm = 1000000;
  REQUIRE(send(*pair.left.link, "?lost").has_value());
  REQUIRE(send(*pair.left.link, "without an answer").has_value());
  pair.a->plan().lose_ppm = 0;
  pair.a->plan().repeat_ppm = 1000000;
  REQUIRE(send(*pair.left.link, "twice").has_value());
  pair.a->plan().repeat_ppm = 0;
  REQUIRE(send(*pair.left.link, "once").has_value());
  pair.turn();
  REQUIRE(pair.left.link->connected());
  REQUIRE(pair.right.messages ==
          std::vector<std::string>{"without an answer", "twice", "twice", "once"});
  REQUIRE(pair.a->counts().messages_lost == 1);
  REQUIRE(pair.a->counts().repeated == 1);
}

TEST_CASE("messages of different links overtake each other") {
  Pair pair;
  Side other;
  auto link = pair.a->connect("mem:b", other, 1s);
  REQUIRE(link.has_value());
  // From here on, this side accepts both links.
  const auto first = std::move(pair.right.link);
  pair.turn();
  REQUIRE(other.connected == 1);
  pair.a->plan().delay_ppm = 1000000;
  pair.a->plan().delay_max = 100ms;
  REQUIRE(send(*pair.left.link, "first").has_value());
  pair.a->plan().delay_ppm = 0;
  REQUIRE(send(**link, "second").has_value());
  REQUIRE(pair.a->counts().overtaken == 1);
  pair.turn();
  pair.clock.advance(1s);
  pair.turn();
  REQUIRE(pair.right.messages == std::vector<std::string>{"second", "first"});
}

TEST_CASE("a stalled link moves nothing until it is released") {
  Pair pair;
  pair.a->stall(true);
  Op op;
  pair.write(op);
  REQUIRE(send(*pair.left.link, "out").has_value());
  REQUIRE(send(*pair.right.link, "in").has_value());
  pair.turn();
  REQUIRE(op.completions == 0);
  REQUIRE(pair.right.messages.empty());
  REQUIRE(pair.left.messages.empty());
  pair.a->stall(false);
  pair.turn();
  REQUIRE(op.code == Code{});
  REQUIRE(op.completions == 1);
  REQUIRE(pair.right.messages == std::vector<std::string>{"out"});
  REQUIRE(pair.left.messages == std::vector<std::string>{"in"});
}

TEST_CASE("links to one address can be stalled alone, those that come later, too") {
  Pair pair;
  const auto other = pair.fabric.make_endpoint("c", pair.clock);
  Side there;
  REQUIRE(other->listen(there).has_value());
  const auto turn = [&] {
    pair.turn();
    other->poll();
    pair.turn();
    other->poll();
  };
  pair.a->stall_to("mem:c", true);
  Side here;
  const auto link = pair.a->connect("mem:c", here, 1h);
  REQUIRE(link.has_value());
  REQUIRE(send(*pair.left.link, "out").has_value());
  turn();
  REQUIRE(pair.right.messages == std::vector<std::string>{"out"});
  REQUIRE(here.connected == 0);
  pair.a->stall_to("mem:c", false);
  turn();
  REQUIRE(here.connected == 1);
  REQUIRE(send(**link, "in").has_value());
  turn();
  REQUIRE(there.messages == std::vector<std::string>{"in"});
}

TEST_CASE("a stalled operation ends at its deadline and takes its link with it") {
  Pair pair;
  pair.a->stall(true);
  Op op;
  pair.write(op);
  pair.turn();
  pair.clock.advance(limits::kRmaDeadline);
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code::kDeadline);
  REQUIRE(pair.left.closed == 1);
  pair.a->stall(false);
  pair.turn();
  REQUIRE(pair.right_memory == std::array<std::byte, 4096>{});
}

TEST_CASE("the same seed makes the same faults") {
  std::array<std::vector<Code>, 2> runs;
  for (auto& run : runs) {
    Pair pair;
    pair.a->plan().fail_ppm = 300000;
    for (int i = 0; i < 64; ++i) {
      Op op;
      pair.write(op, 64);
      pair.turn();
      run.push_back(op.code);
    }
    REQUIRE(pair.a->counts().failed > 0);
    REQUIRE(pair.a->counts().failed < 64);
  }
  REQUIRE(runs[0] == runs[1]);
}

}  // namespace
}  // namespace stdchk::transport
