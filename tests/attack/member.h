#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"
#include "transport/secure/keyring.h"
#include "transport/tcp/endpoint.h"

/// Members of a pool, each with an endpoint over TCP and memory that others may reach.
namespace stdchk::attack {

using test::secret_of;

constexpr std::size_t kBytes = 64 * limits::kKiB;

/// A Side is one end of a link, and records its events.
struct Side final : transport::LinkHandler {
  void on_connected(transport::Link&) override { connected = true; }
  void on_message(transport::Link&, ByteSpan message) override {
    messages.emplace_back(message.begin(), message.end());
  }
  void on_closed(transport::Link&, Error why) override {
    closed = true;
    code = why.code;
  }
  std::unique_ptr<transport::Link> link;
  bool connected = false;
  bool closed = false;
  Code code{};
  std::vector<std::vector<std::byte>> messages;
};

struct Sent final : transport::Operation {
  void complete(Status status) override {
    ended = true;
    good = status.has_value();
  }
  bool ended = false;
  bool good = false;
};

/// A member of the pool with memory that others may reach.
struct Member final : transport::AcceptHandler {
  explicit Member(transport::secure::Role role = transport::secure::Role::kManager,
                  const transport::tcp::Settings& settings = {}, int seed = 1) {
    keyring = std::make_shared<const transport::secure::Keyring>(
        transport::secure::Keyring::of_root(secret_of(seed), transport::secure::new_member(role)));
    auto made = transport::tcp::TcpEndpoint::create(clock, "127.0.0.1", 0, keyring, settings);
    REQUIRE(made.has_value());
    endpoint = std::move(*made);
    region = std::move(*endpoint->register_memory(memory));
    REQUIRE(endpoint->listen(*this).has_value());
  }
  ~Member() override {
    sides.clear();
    region.reset();
  }
  void on_accept(std::unique_ptr<transport::Link> link) override {
    auto side = std::make_unique<Side>();
    side->link = std::move(link);
    side->link->set_handler(*side);
    sides.push_back(std::move(side));
  }
  /// Polls this and `other` until `done`.
  bool until(const std::function<bool()>& done, Member* other = nullptr,
             Duration time = std::chrono::seconds(10)) {
    const Time end = clock.now() + time;
    while (!done()) {
      if (clock.now() > end) return false;
      bool any = endpoint->poll();
      if (other != nullptr) any |= other->endpoint->poll();
      busy_polls += any;
      if (!any) ::usleep(200);
    }
    return true;
  }
  Side& connect(Member& to) {
    auto side = std::make_unique<Side>();
    side->link =
        std::move(*endpoint->connect(to.endpoint->address(), *side, std::chrono::seconds(5)));
    sides.push_back(std::move(side));
    return *sides.back();
  }
  /// Members still come in, write and read.
  void expect_served() {
    Member other(transport::secure::Role::kClient);
    Side& side = other.connect(*this);
    const std::size_t before = sides.size();
    REQUIRE(until([&] { return side.connected && sides.size() > before; }, &other));
    REQUIRE(side.link->send(std::as_bytes(std::span("hello"))).has_value());
    REQUIRE(until([&] { return !sides.back()->messages.empty(); }, &other));
    const transport::RemoteKey key = sides.back()->link->share(*region);
    Sent sent;
    const std::array pieces{transport::LocalPiece{other.memory.data(), kBytes, other.region.get()}};
    REQUIRE(side.link->write(pieces, key, 0, sent).has_value());
    REQUIRE(until([&] { return sent.ended; }, &other));
    REQUIRE(sent.good);
  }

  SystemClock clock;
  std::atomic<int> busy_polls{0};
  std::shared_ptr<const transport::secure::Keyring> keyring;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  std::unique_ptr<transport::tcp::TcpEndpoint> endpoint;
  std::unique_ptr<transport::MemoryRegion> region;
  std::vector<std::unique_ptr<Side>> sides;
};

}  // namespace stdchk::attack
