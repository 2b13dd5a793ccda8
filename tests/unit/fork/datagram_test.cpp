#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/serving.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::multicast {
namespace {

using test::secret_of;

constexpr std::uint32_t kLoopback = 0x7f000001;

std::vector<std::byte> sealed(Datagrams& from, const Message& message) {
  const ByteSpan bytes = from.seal(message);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("a message comes out as it went in") {
  Datagrams sender(secret_of(1));
  Datagrams receiver(secret_of(1));
  Ask ask;
  ask.rate_kib = 1234;
  ask.delay_us = 99;
  ask.lost_cells = 3;
  ask.done = ask.gone = true;
  ask.wants = {{7, 3, 5}, {1000000, 1, 0xffff}};
  const auto opened = receiver.open(sealed(sender, AskMessage{42, ask}));
  REQUIRE(opened);
  CHECK(opened->from == sender.id());
  const auto* asked = std::get_if<AskMessage>(&opened->message);
  REQUIRE(asked != nullptr);
  CHECK(asked->to == 42);
  CHECK(asked->ask == ask);
  const std::vector<std::byte> bytes(1000, std::byte{9});
  const auto second = receiver.open(sealed(sender, Cell{5, 2, bytes}));
  REQUIRE(second);
  CHECK(second->number == opened->number + 1);
  const auto* cell = std::get_if<Cell>(&second->message);
  REQUIRE(cell != nullptr);
  CHECK((cell->unit == 5 && cell->cell == 2 && std::ranges::equal(cell->bytes, bytes)));
  const auto third = receiver.open(sealed(sender, Join{42, 43, true, false}));
  REQUIRE(third);
  const auto* join = std::get_if<Join>(&third->message);
  REQUIRE(join != nullptr);
  CHECK((join->to == 42 && join->avoid == 43 && join->by_unicast && !join->relays));
  const auto fourth = receiver.open(sealed(sender, Place{7, 8, 0x0a000001, 7100}));
  REQUIRE(fourth);
  const auto* place = std::get_if<Place>(&fourth->message);
  REQUIRE(place != nullptr);
  CHECK((place->to == 7 && place->relay == 8 && place->host == 0x0a000001 && place->port == 7100));
}

TEST_CASE("a datagram of another group, or one that was changed or cut, is refused") {
  Datagrams sender(secret_of(1));
  Datagrams receiver(secret_of(1));
  Datagrams stranger(secret_of(2));
  const std::vector<std::byte> good = sealed(sender, Offer{});
  CHECK(receiver.open(good));
  CHECK_FALSE(receiver.open(sealed(stranger, Offer{})));
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x10};
    CHECK_FALSE(receiver.open(bad));
    CHECK_FALSE(receiver.open(ByteSpan(good).first(at)));
  }
  CHECK(receiver.open(good));
}

TEST_CASE("a manifest is known by its root, and knows every unit") {
  std::vector<std::byte> image(600 * kUnitBytes + 77);
  Prng prng(9);
  for (std::byte& each : image) each = static_cast<std::byte>(prng.next());
  const auto made = Manifest::compute(image.size(), [&](std::uint64_t offset, MutableByteSpan out) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return Status();
  });
  REQUIRE(made);
  CHECK(made->own_units() == 2);
  CHECK(made->image_units() == 601);
  Manifest received(image.size());
  CHECK(received.root() != made->root());
  std::vector<std::byte> unit(kUnitBytes);
  for (std::uint32_t i = 0; i < made->own_units(); ++i) {
    made->copy_own_unit(i, unit);
    received.set_own_unit(i, unit);
  }
  CHECK(received.root() == made->root());
  CHECK(received.matches(600, ByteSpan(image).last(77)));
  CHECK_FALSE(received.matches(600, ByteSpan(image).last(78)));
  CHECK_FALSE(received.matches(3, ByteSpan(image).first(kUnitBytes)));
  CHECK(received.matches(0, ByteSpan(image).first(kUnitBytes)));
}

TEST_CASE("cells of a unit fit into a datagram of the interface") {
  CHECK(cells_for(1472) == 12);
  CHECK(cells_for(8972) == 2);
  CHECK(cells_for(65507) == 1);
  CHECK(cells_for(100) == kCellsMax);
}

/// A receiver by hand, over unicast.
class Recorded {
 public:
  explicit Recorded(const Secret& group)
      : datagrams_(group), socket_(std::move(*Socket::open({kLoopback, 0}, 1))) {}
  /// Asks `sender` for the first unit, and returns the datagram.
  std::vector<std::byte> ask(const Address& sender, std::uint64_t id) {
    Ask ask;
    ask.by_unicast = true;
    ask.wants = {{0, 1, 1}};
    std::vector<std::byte> datagram = sealed(datagrams_, AskMessage{id, ask});
    send(sender, datagram);
    return datagram;
  }
  /// Tells `sender` that this receiver has everything.
  void finish(const Address& sender, std::uint64_t id) {
    Ask done;
    done.done = done.by_unicast = true;
    send(sender, sealed(datagrams_, AskMessage{id, done}));
  }
  void send(const Address& to, ByteSpan datagram) { static_cast<void>(socket_.send(datagram, to)); }
  std::uint64_t sender_of_offer(const Address& sender) {
    send(sender, sealed(datagrams_, Hello{}));
    for (;;) {
      if (const auto opened = next(); opened && std::holds_alternative<Offer>(opened->message)) {
        return opened->from;
      }
    }
  }
  /// Cells that come until none has come for `time`.
  int cells_within(std::chrono::milliseconds time) {
    int cells = 0;
    while (const auto opened = next(time)) {
      if (std::holds_alternative<Cell>(opened->message)) ++cells;
    }
    return cells;
  }

 private:
  std::optional<Opened> next(std::chrono::milliseconds time = std::chrono::seconds(5)) {
    pollfd ready{socket_.fd(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(time.count())) != 1) return std::nullopt;
    Address from;
    const auto length = socket_.receive(room_, from);
    if (!length) return std::nullopt;
    auto opened = datagrams_.open(ByteSpan(room_).first(*length));
    if (!opened) return std::nullopt;
    return std::move(*opened);
  }

  Datagrams datagrams_;
  Socket socket_;
  std::array<std::byte, kDatagramBytesMax> room_{};
};

TEST_CASE("a recorded request is answered once, and by no other sender") {
  const std::vector<std::byte> image(3 * kUnitBytes, std::byte{7});
  const auto read = [&](std::uint64_t offset, MutableByteSpan out) {
    std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return Status();
  };
  const auto manifest = Manifest::compute(image.size(), read);
  REQUIRE(manifest);
  std::promise<Address> ready;
  SendOptions options;
  options.group = secret_of(1);
  options.own = {kLoopback, 0};
  options.to = {0xefff4d01, 47001};
  options.idle = std::chrono::seconds(2);
  options.read = read;
  options.on_ready = [&](const Address& own) { ready.set_value(own); };
  bool sent = false;  // the main thread alone uses Catch2's macros
  std::thread sender([&] {
    SystemClock clock;
    sent = send(options, *manifest, clock).has_value();
  });
  const Address address = ready.get_future().get();
  Recorded receiver(secret_of(1));
  const std::uint64_t id = receiver.sender_of_offer(address);
  const std::vector<std::byte> datagram = receiver.ask(address, id);
  CHECK(receiver.cells_within(std::chrono::milliseconds(300)) == 1);
  for (int i = 0; i < 20; ++i) receiver.send(address, datagram);
  CHECK(receiver.cells_within(std::chrono::milliseconds(300)) == 0);
  receiver.ask(address, id + 1);
  CHECK(receiver.cells_within(std::chrono::milliseconds(300)) == 0);
  receiver.ask(address, id);
  CHECK(receiver.cells_within(std::chrono::milliseconds(300)) == 1);
  sender.join();
  CHECK(sent);
}

/// A sender of a small image that leaves laggards, in a thread. Two receivers are expected.
class Leaving {
 public:
  Leaving() {
    options_.group = secret_of(1);
    options_.own = {kLoopback, 0};
    options_.to = {0xefff4d01, 47001};
    options_.idle = std::chrono::seconds(60);
    options_.expected = 2;
    options_.leaves_laggards = true;
    options_.is_over = [this] { return is_over_.load(); };
    options_.read = [](std::uint64_t, MutableByteSpan out) {
      std::fill(out.begin(), out.end(), std::byte{7});
      return Status();
    };
    options_.on_ready = [this](const Address& own) { ready_.set_value(own); };
    thread_ = std::thread([this] {
      SystemClock clock;
      const auto manifest = Manifest::compute(3 * kUnitBytes, options_.read);
      const auto report = send(options_, *manifest, clock);
      complete_ = report ? report->complete : 1000;
      has_ended_ = true;
    });
    address_ = ready_.get_future().get();
  }
  ~Leaving() { static_cast<void>(end()); }
  const Address& address() const { return address_; }
  bool has_ended() const { return has_ended_; }
  /// Returns the number of complete receivers.
  std::size_t end() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    return complete_;
  }

 private:
  SendOptions options_;
  std::promise<Address> ready_;
  Address address_;
  std::atomic<bool> is_over_{false};
  std::atomic<bool> has_ended_{false};
  std::size_t complete_ = 0;
  std::thread thread_;
};

TEST_CASE("a sender leaves a receiver that lags when half of the receivers are complete") {
  Leaving sender;
  Recorded quick(secret_of(1)), slow(secret_of(1));
  const std::uint64_t id = quick.sender_of_offer(sender.address());
  slow.ask(sender.address(), id);
  quick.ask(sender.address(), id);
  quick.finish(sender.address(), id);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!sender.has_ended() && std::chrono::steady_clock::now() < until) {
    slow.ask(sender.address(), id);
    static_cast<void>(slow.cells_within(std::chrono::milliseconds(50)));
  }
  CHECK(sender.has_ended());
  CHECK(sender.end() == 1);
}

TEST_CASE("a sender waits for expected receivers until it is told to end") {
  Leaving sender;
  Recorded slow(secret_of(1));
  const std::uint64_t id = slow.sender_of_offer(sender.address());
  slow.ask(sender.address(), id);
  static_cast<void>(slow.cells_within(std::chrono::milliseconds(300)));
  CHECK_FALSE(sender.has_ended());
  CHECK(sender.end() == 0);
}

TEST_CASE("a sender that lives long takes new receivers, and no recorded request of the others") {
  Datagrams datagrams(secret_of(1));
  auto socket = Socket::open({kLoopback, 0}, 1);
  REQUIRE(socket);
  Serving::Options options;
  options.sender.units = 10;
  Serving serving(options, *socket, datagrams);
  Time now = Time{} + std::chrono::seconds(1);
  const auto asks = [&](std::uint64_t from, std::uint64_t number) {
    return serving.take(now, Opened{from, number, Hello{}}, {datagrams.id(), Ask{}}, {});
  };
  constexpr std::uint64_t kMost = Sender::kReceiversMax;
  for (std::uint64_t id = 1; id <= kMost; ++id) {
    REQUIRE(asks(id, 7));
    now += std::chrono::milliseconds(1);
  }
  CHECK_FALSE(asks(kMost + 1, 7));  // all others are there
  now += Sender::kSilence - std::chrono::milliseconds(2);
  CHECK(asks(1, 8));
  now += std::chrono::milliseconds(500);
  for (std::uint64_t id = kMost + 1; id < kMost + 50; ++id) CHECK(asks(id, 7));
  CHECK(serving.peers() == kMost);
  // The first 49 but one have made room. The others are known.
  CHECK_FALSE(asks(1, 8));
  for (std::uint64_t id = 51; id <= kMost; ++id) CHECK_FALSE(asks(id, 7));
  CHECK(asks(2, 7));
}

}  // namespace
}  // namespace stdchk::multicast
