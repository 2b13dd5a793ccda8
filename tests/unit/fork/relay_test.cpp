// Tests the tree of receivers that pass units on where multicast does not reach, and sends an image
// through it.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "fork/multicast/relay_tree.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;
using test::secret_of;

constexpr std::uint32_t kLoopback = 0x7f000001;
constexpr RelayTree::Kind kRelay{true, true};
constexpr RelayTree::Kind kLeaf{true, false};
constexpr RelayTree::Kind kReached{false, true};
constexpr Time kStart = Time{} + std::chrono::seconds(1);

TEST_CASE("receivers that multicast does not reach form a tree, in which nobody serves many") {
  RelayTree tree;
  std::map<ReceiverId, ReceiverId> relays;
  for (ReceiverId id = 1; id <= 16; ++id) relays[id] = tree.place(kStart, id, kRelay, 0);
  std::map<ReceiverId, std::size_t> served;
  for (const auto& [id, relay] : relays) {
    ++served[relay];
    int depth = 1;
    for (ReceiverId above = relay; above != 0; above = relays[above]) ++depth;
    CHECK(depth <= 4);
  }
  for (const auto& [relay, count] : served) CHECK(count <= RelayTree::kFanOut);
  CHECK(served[0] == RelayTree::kFanOut);
  CHECK(tree.members() == 16);
  // A repeated question has the same answer.
  for (ReceiverId id = 1; id <= 16; ++id) CHECK(tree.place(kStart, id, kRelay, 0) == relays[id]);
}

TEST_CASE("a receiver gets another relay for a lost one, and never one that it serves itself") {
  RelayTree tree;
  for (ReceiverId id = 1; id <= 8; ++id) tree.place(kStart, id, kRelay, 0);
  REQUIRE(tree.place(kStart, 3, kRelay, 0) == 1);
  REQUIRE(tree.place(kStart, 4, kRelay, 0) == 1);
  REQUIRE(tree.place(kStart, 7, kRelay, 0) == 3);
  const ReceiverId next = tree.place(kStart, 3, kRelay, 1);
  CHECK((next != 1 && next != 3 && next != 7));
  CHECK(tree.place(kStart, 3, kRelay, 1) == next);
  const ReceiverId third = tree.place(kStart, 3, kRelay, next);
  CHECK((third != 1 && third != next && third != 3 && third != 7));
}

TEST_CASE("receivers that are silent, complete or cannot relay get nobody to serve") {
  RelayTree tree;
  for (const ReceiverId id : {1U, 2U, 3U}) tree.place(kStart, id, id == 3 ? kLeaf : kRelay, 0);
  tree.heard(kStart, 1, true);
  // The complete receiver needs the sender no more.
  CHECK(tree.place(kStart, 4, kRelay, 0) == 0);
  CHECK(tree.place(kStart, 5, kLeaf, 0) == 2);
  CHECK(tree.place(kStart, 6, kLeaf, 0) == 2);
  const Time later = kStart + RelayTree::kSilence + milliseconds(1);
  for (const ReceiverId id : {3U, 4U, 5U, 6U}) tree.heard(later, id, false);
  CHECK(tree.place(later, 5, kLeaf, 0) == 0);  // 2 is silent, and the sender has room
  CHECK(tree.members() == 4);
}

TEST_CASE("a receiver that multicast reaches relays to others, and needs no relay") {
  RelayTree tree;
  for (const ReceiverId id : {1U, 2U}) REQUIRE(tree.place(kStart, id, kReached, 0) == 0);
  for (const ReceiverId id : {3U, 4U}) REQUIRE(tree.place(kStart, id, kLeaf, 0) == 0);
  for (const ReceiverId id : {5U, 6U}) CHECK(tree.place(kStart, id, kLeaf, 0) == 1);
  for (const ReceiverId id : {7U, 8U}) CHECK(tree.place(kStart, id, kLeaf, 0) == 2);
  CHECK(tree.place(kStart, 9, kLeaf, 0) == 0);  // nobody has room
}

TEST_CASE("a tree has a limited number of members") {
  RelayTree tree;
  for (ReceiverId id = 1; id <= RelayTree::kMembersMax + 5; ++id) {
    tree.place(kStart, id, kRelay, 0);
  }
  CHECK(tree.members() == RelayTree::kMembersMax);
  CHECK(tree.place(kStart, 0, kRelay, 0) == 0);
  CHECK(tree.hears(kStart + RelayTree::kSilence, 1));
  CHECK_FALSE(tree.hears(kStart + RelayTree::kSilence + milliseconds(1), 1));
  CHECK_FALSE(tree.hears(kStart, RelayTree::kMembersMax + 5));
}

/// A Copy receives an image into memory, by a thread of its own.
class Copy {
 public:
  Copy(const Address& sender, const ChunkName& root, bool can_read = true) {
    options_.group = secret_of(1);
    options_.from = sender;
    options_.own = {kLoopback, 0};
    options_.root = root;
    options_.by_unicast = true;
    options_.begin = [this](std::uint64_t bytes) {
      bytes_.resize(bytes);
      return Status();
    };
    options_.write = [this](std::uint64_t offset, ByteSpan bytes) {
      std::ranges::copy(bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
      return Status();
    };
    options_.read = [this, can_read](std::uint64_t offset, MutableByteSpan out) -> Status {
      if (!can_read) return fail(Code::kDataLost, "test");
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      return Status();
    };
    thread_ = std::thread([this] {
      SystemClock clock;
      if (const auto report = receive(options_, clock)) {
        report_ = *report;
        is_complete_ = true;
      }
    });
  }
  ~Copy() { join(); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  void join() {
    if (thread_.joinable()) thread_.join();
  }
  bool is_complete() const { return is_complete_; }
  /// After join().
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const ReceiveReport& report() const { return report_; }

 private:
  ReceiveOptions options_;
  std::vector<std::byte> bytes_;
  ReceiveReport report_;
  std::atomic<bool> is_complete_{false};
  std::thread thread_;
};

/// An Origin sends an image from memory, by a thread of its own.
class Origin {
 public:
  explicit Origin(std::uint32_t expected) : image_(128 * kUnitBytes + 77) {
    Prng prng(9);
    for (std::byte& each : image_) each = static_cast<std::byte>(prng.next());
    options_.group = secret_of(1);
    options_.own = {kLoopback, 0};
    options_.to = {0xefff4d03, 47003};
    options_.expected = expected;
    options_.read = [this](std::uint64_t offset, MutableByteSpan out) {
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      return Status();
    };
    options_.on_ready = [this](const Address& own) { ready_.set_value(own); };
    manifest_ = std::make_unique<Manifest>(*Manifest::compute(image_.size(), options_.read));
    thread_ = std::thread([this] {
      SystemClock clock;
      if (const auto report = send(options_, *manifest_, clock)) sent_ = *report;
    });
    address_ = ready_.get_future().get();
  }
  ~Origin() { join(); }
  Origin(const Origin&) = delete;
  Origin& operator=(const Origin&) = delete;

  void join() {
    if (thread_.joinable()) thread_.join();
  }
  const Address& address() const { return address_; }
  const Manifest& manifest() const { return *manifest_; }
  const std::vector<std::byte>& image() const { return image_; }
  /// After join().
  const SendReport& sent() const { return sent_; }

 private:
  std::vector<std::byte> image_;
  SendOptions options_;
  std::unique_ptr<Manifest> manifest_;
  std::promise<Address> ready_;
  Address address_;
  SendReport sent_;
  std::thread thread_;
};

TEST_CASE("an image reaches all hosts without multicast, and leaves the sender about twice") {
  constexpr std::size_t kCopies = 5;
  Origin origin(kCopies);
  std::vector<std::unique_ptr<Copy>> copies;
  for (std::size_t i = 0; i < kCopies; ++i) {
    copies.push_back(std::make_unique<Copy>(origin.address(), origin.manifest().root()));
  }
  for (const auto& copy : copies) copy->join();
  origin.join();
  std::size_t by_relay = 0;
  std::uint64_t relayed = 0;
  for (const auto& copy : copies) {
    CHECK(copy->bytes() == origin.image());
    CHECK(copy->report().by_unicast);
    by_relay += copy->report().by_relay ? 1 : 0;
    relayed += copy->report().relayed_cells;
  }
  const std::uint32_t units = origin.manifest().all_units();
  const std::uint64_t cells = origin.sent().counts.unicast_cells;
  INFO(cells << " of " << units << " units left the sender, " << relayed << " the relays");
  CHECK(by_relay >= 2);
  CHECK(relayed >= units);
  // Each unit is a single cell on the loopback. Units that come late are sent again.
  CHECK(cells < 3 * units + units / 2);
}

TEST_CASE("a host that cannot read what it has received passes nothing on, and gets the image") {
  constexpr std::size_t kCopies = 3;
  Origin origin(kCopies);
  std::vector<std::unique_ptr<Copy>> copies;
  for (std::size_t i = 0; i < kCopies; ++i) {
    copies.push_back(std::make_unique<Copy>(origin.address(), origin.manifest().root(), false));
  }
  for (const auto& copy : copies) {
    copy->join();
    CHECK(copy->report().image_bytes == origin.image().size());
    CHECK(copy->bytes() == origin.image());
  }
}

/// An IdleMember joins the tree, and then only shows that it lives.
class IdleMember {
 public:
  IdleMember(const Address& sender, bool relays)
      : sender_(sender),
        relays_(relays),
        datagrams_(secret_of(1)),
        socket_(std::move(*Socket::open({kLoopback, 0}, 1))) {}

  void turn() {
    Ask ask;
    ask.by_unicast = true;
    if (sender_id_ == 0) {
      say(Hello{}, sender_);
    } else if (!is_placed_) {
      say(Join{sender_id_, 0, true, relays_}, sender_);
    } else {
      say(AskMessage{sender_id_, ask}, sender_);
    }
    if (child_) say(Probe{}, *child_);
    Address from;
    while (const auto length = socket_.receive(room_, from)) {
      const auto opened = datagrams_.open(ByteSpan(room_).first(*length));
      if (!opened) continue;
      if (std::holds_alternative<Offer>(opened->message)) sender_id_ = opened->from;
      if (std::holds_alternative<Place>(opened->message)) is_placed_ = true;
      if (std::holds_alternative<AskMessage>(opened->message)) child_ = from;
    }
  }
  void leave() {
    Ask ask;
    ask.gone = true;
    for (int i = 0; i < 3; ++i) say(AskMessage{sender_id_, ask}, sender_);
  }
  bool is_placed() const { return is_placed_; }
  bool was_asked() const { return child_.has_value(); }

 private:
  void say(const Message& message, const Address& to) {
    static_cast<void>(socket_.send(datagrams_.seal(message), to));
  }

  const Address sender_;
  const bool relays_;
  Datagrams datagrams_;
  Socket socket_;
  std::uint64_t sender_id_ = 0;
  bool is_placed_ = false;
  std::optional<Address> child_;
  std::array<std::byte, kDatagramBytesMax> room_{};
};

TEST_CASE("a relay that lives and sends nothing is left, and the sender serves its receiver") {
  Origin origin(1);
  // Both are served by the sender, so a third receiver gets the relay.
  IdleMember relay(origin.address(), true);
  IdleMember leaf(origin.address(), false);
  const auto turn = [&] {
    relay.turn();
    leaf.turn();
    std::this_thread::sleep_for(milliseconds(20));
  };
  for (int i = 0; i < 250 && !(relay.is_placed() && leaf.is_placed()); ++i) turn();
  REQUIRE((relay.is_placed() && leaf.is_placed()));
  SystemClock clock;
  const Time begun = clock.now();
  Copy copy(origin.address(), origin.manifest().root());
  while (!copy.is_complete() && clock.now() - begun < std::chrono::seconds(9)) turn();
  CHECK(relay.was_asked());
  CHECK(copy.is_complete());
  relay.leave();
  leaf.leave();
  copy.join();
  CHECK(copy.bytes() == origin.image());
  CHECK_FALSE(copy.report().by_relay);
}

}  // namespace
}  // namespace stdchk::multicast
