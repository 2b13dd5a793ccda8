#include "transport/mem/mem.h"

#include <array>
#include <string>

#include "core/runtime/reactor.h"
#include "tests/unit/transport/link_pair.h"

namespace stdchk::transport {
namespace {

using namespace std::chrono_literals;

struct Pair : LinkPair<Endpoint> {
  Pair() : LinkPair([](auto& in, auto& time) { return in.make_endpoint("a", time); }) {}
};

TEST_CASE("a write is copied by the initiator's poll alone") {
  Pair pair;
  pair.left_memory.fill(std::byte{7});
  Op op;
  const std::array pieces{pair.piece(0, 100)};
  REQUIRE(pair.left.link->write(pieces, pair.right_region->remote_key(), 11, op).has_value());
  REQUIRE(pair.right_memory[11] == std::byte{0});
  pair.b->poll();
  REQUIRE(op.completions == 0);
  pair.a->poll();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code{});
  REQUIRE(pair.right_memory[10] == std::byte{0});
  REQUIRE(pair.right_memory[11] == std::byte{7});
  REQUIRE(pair.right_memory[110] == std::byte{7});
  REQUIRE(pair.right_memory[111] == std::byte{0});
}

TEST_CASE("a write that was queued before a fence never lands") {
  Pair pair;
  pair.left_memory.fill(std::byte{7});
  Op op;
  const std::array pieces{pair.piece(0, 4096)};
  REQUIRE(pair.left.link->write(pieces, pair.right_region->remote_key(), 0, op).has_value());
  REQUIRE(pair.right.link->fence());
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(op.code == Code::kPeerLost);
  REQUIRE(pair.right_memory == std::array<std::byte, 4096>{});
  REQUIRE(pair.left.closed == 1);
  REQUIRE(pair.right.closed == 1);
  REQUIRE(pair.right.link->fence());
}

TEST_CASE("full queues answer that the caller would have to wait") {
  Pair pair;
  int sent = 0;
  Status status;
  while ((status = pair.left.link->send(bytes_of("m"))).has_value()) ++sent;
  REQUIRE(status.error().code == Code::kWouldBlock);
  REQUIRE(sent > 0);
  pair.turn();
  REQUIRE(pair.left.link->send(bytes_of("last")).has_value());
  for (int i = 0; i < 10; ++i) pair.turn();
  REQUIRE(pair.right.messages.size() == static_cast<std::size_t>(sent) + 1);
  REQUIRE(pair.right.messages.back() == "last");

  std::vector<std::unique_ptr<Op>> ops;
  const std::array pieces{pair.piece(0, 8)};
  do {
    ops.push_back(std::make_unique<Op>());
    status = pair.left.link->write(pieces, pair.right_region->remote_key(), 0, *ops.back());
  } while (status.has_value());
  REQUIRE(status.error().code == Code::kWouldBlock);
  REQUIRE_FALSE(ops.back()->in_flight());
  ops.pop_back();
  pair.left.link.reset();
  for (const auto& op : ops) {
    REQUIRE(op->completions == 1);
    REQUIRE(op->code == Code::kCancelled);
  }
}

TEST_CASE("what was sent before a close is delivered before it is told") {
  Pair pair;
  REQUIRE(pair.left.link->send(bytes_of("one")).has_value());
  REQUIRE(pair.left.link->send(bytes_of("two")).has_value());
  pair.left.link.reset();
  pair.turn();
  REQUIRE(pair.right.messages == std::vector<std::string>{"one", "two"});
  REQUIRE(pair.right.closed == 1);
  REQUIRE(pair.right.code == Code::kPeerLost);
  REQUIRE_FALSE(pair.right.link->connected());
}

TEST_CASE("a region that was deregistered cannot be reached any more") {
  Pair pair;
  const RemoteKey key = pair.right_region->remote_key();
  pair.right_region.reset();
  pair.left_memory.fill(std::byte{7});
  Op op;
  const std::array pieces{pair.piece(0, 8)};
  REQUIRE(pair.left.link->write(pieces, key, 0, op).has_value());
  pair.turn();
  REQUIRE(op.code == Code::kPermission);
  REQUIRE(pair.right_memory[0] == std::byte{0});
}

TEST_CASE("connecting ends at its deadline when the target does not poll") {
  Pair pair;
  Side late;
  late.link = std::move(*pair.a->connect("mem:b", late, 2s));
  REQUIRE(pair.a->sleep_max() == 2s);
  pair.a->poll();
  REQUIRE(late.closed == 0);
  pair.clock.advance(2s);
  pair.a->poll();
  REQUIRE(late.closed == 1);
  REQUIRE(late.code == Code::kDeadline);
  pair.right.link.reset();
  pair.turn();
  REQUIRE(pair.right.link == nullptr);  // the abandoned attempt is not accepted later
}

TEST_CASE("connecting to nobody is refused") {
  Pair pair;
  Side lost;
  lost.link = std::move(*pair.a->connect("mem:nobody", lost, 2s));
  REQUIRE(lost.closed == 0);
  pair.a->poll();
  REQUIRE(lost.closed == 1);
  REQUIRE(lost.code == Code::kPeerLost);
  REQUIRE(pair.a->connect("tcp:1.2.3.4:5", lost, 2s).error().code == Code::kInvalidArgument);
}

}  // namespace
}  // namespace stdchk::transport
