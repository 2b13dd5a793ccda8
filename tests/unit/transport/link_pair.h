#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "transport/mem/mem.h"

namespace stdchk::transport {

/// An Op counts its completions and keeps the last error code.
struct Op final : Operation {
  void complete(Status status) override {
    ++completions;
    code = status.has_value() ? Code{} : status.error().code;
  }
  int completions = 0;
  Code code{};
};

/// A Side is one end of a link, and records its events.
struct Side final : LinkHandler, AcceptHandler {
  void on_connected(Link&) override { ++connected; }
  void on_message(Link&, ByteSpan message) override {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }
  void on_closed(Link&, Error why) override {
    ++closed;
    code = why.code;
  }
  void on_accept(std::unique_ptr<Link> taken) override {
    link = std::move(taken);
    link->set_handler(*this);
  }
  std::unique_ptr<Link> link;
  std::vector<std::string> messages;
  int connected = 0;
  int closed = 0;
  Code code{};
};

/// A LinkPair is a link from an endpoint of type Left to one in memory, all in one thread.
template <class Left>
struct LinkPair {
  /// `make_left` gets the fabric and the clock.
  template <class MakeLeft>
  explicit LinkPair(MakeLeft make_left) : a(make_left(fabric, clock)) {
    REQUIRE(b->listen(right).has_value());
    left.link = std::move(*a->connect("mem:b", left, std::chrono::seconds(1)));
    turn();
    REQUIRE(left.connected == 1);
    REQUIRE(right.link != nullptr);
    left_region = std::move(*a->register_memory(left_memory));
    right_region = std::move(*b->register_memory(right_memory));
  }
  void turn() {
    for (int i = 0; i < 6; ++i) {
      a->poll();
      b->poll();
    }
  }
  LocalPiece piece(std::size_t offset, std::size_t length) {
    return {left_memory.data() + offset, length, left_region.get()};
  }
  std::array<std::byte, 4096> left_memory{};
  std::array<std::byte, 4096> right_memory{};
  ManualClock clock;
  mem::Fabric fabric;
  std::unique_ptr<Left> a;
  std::unique_ptr<Endpoint> b = fabric.make_endpoint("b", clock);
  std::unique_ptr<MemoryRegion> left_region;
  std::unique_ptr<MemoryRegion> right_region;
  Side left;
  Side right;
};

inline ByteSpan bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace stdchk::transport
