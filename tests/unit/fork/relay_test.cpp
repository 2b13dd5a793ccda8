// Tests the tree of receivers that pass units on where multicast does not reach, and sends an image
// through it.

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
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
  for (const ReceiverId id : {1, 2, 3}) tree.place(kStart, id, id == 3 ? kLeaf : kRelay, 0);
  tree.heard(kStart, 1, true);
  // The complete receiver needs the sender no more.
  CHECK(tree.place(kStart, 4, kRelay, 0) == 0);
  CHECK(tree.place(kStart, 5, kLeaf, 0) == 2);
  CHECK(tree.place(kStart, 6, kLeaf, 0) == 2);
  const Time later = kStart + RelayTree::kSilence + milliseconds(1);
  for (const ReceiverId id : {3, 4, 5, 6}) tree.heard(later, id, false);
  CHECK(tree.place(later, 5, kLeaf, 0) == 0);  // 2 is silent, and the sender has room
  CHECK(tree.members() == 4);
}

TEST_CASE("a receiver that multicast reaches relays to others, and needs no relay") {
  RelayTree tree;
  for (const ReceiverId id : {1, 2}) REQUIRE(tree.place(kStart, id, kReached, 0) == 0);
  for (const ReceiverId id : {3, 4}) REQUIRE(tree.place(kStart, id, kLeaf, 0) == 0);
  for (const ReceiverId id : {5, 6}) CHECK(tree.place(kStart, id, kLeaf, 0) == 1);
  for (const ReceiverId id : {7, 8}) CHECK(tree.place(kStart, id, kLeaf, 0) == 2);
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
  Copy(const Address& sender, const ChunkName& root) {
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
    options_.read = [this](std::uint64_t offset, MutableByteSpan out) {
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      return Status();
    };
    thread_ = std::thread([this] {
      SystemClock clock;
      if (const auto report = receive(options_, clock)) report_ = *report;
    });
  }
  ~Copy() { join(); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  void join() {
    if (thread_.joinable()) thread_.join();
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  const ReceiveReport& report() const { return report_; }

 private:
  ReceiveOptions options_;
  std::vector<std::byte> bytes_;
  ReceiveReport report_;
  std::thread thread_;
};

TEST_CASE("an image reaches all hosts without multicast, and leaves the sender about twice") {
  constexpr std::size_t kCopies = 5;
  std::vector<std::byte> image(128 * kUnitBytes + 77);
  Prng prng(9);
  for (std::byte& each : image) each = static_cast<std::byte>(prng.next());
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
  options.to = {0xefff4d03, 47003};
  options.expected = kCopies;
  options.read = read;
  options.on_ready = [&](const Address& own) { ready.set_value(own); };
  SendReport sent;  // the main thread alone uses Catch2's macros
  std::thread sender([&] {
    SystemClock clock;
    if (const auto report = send(options, *manifest, clock)) sent = *report;
  });
  const Address address = ready.get_future().get();
  std::vector<std::unique_ptr<Copy>> copies;
  for (std::size_t i = 0; i < kCopies; ++i) {
    copies.push_back(std::make_unique<Copy>(address, manifest->root()));
  }
  for (const auto& copy : copies) copy->join();
  sender.join();
  std::size_t by_relay = 0;
  std::uint64_t relayed = 0;
  for (const auto& copy : copies) {
    CHECK(copy->bytes() == image);
    CHECK(copy->report().by_unicast);
    by_relay += copy->report().by_relay ? 1 : 0;
    relayed += copy->report().relayed_cells;
  }
  const std::uint32_t units = manifest->all_units();
  INFO(sent.counts.unicast_cells << " of " << units << " units left the sender, " << relayed
                                 << " the relays");
  CHECK(by_relay >= 2);
  CHECK(relayed >= units);
  // Each unit is a single cell on the loopback. Units that come late are sent again.
  CHECK(sent.counts.unicast_cells < 3 * units + units / 2);
}

}  // namespace
}  // namespace stdchk::multicast
