// Gives a receiver the datagrams of a member of its group that is no honest sender.

#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "fork/multicast/cast.h"
#include "fork/multicast/manifest.h"
#include "fork/multicast/messages.h"
#include "tests/support/catch.h"
#include "tests/support/members.h"

namespace stdchk::multicast {
namespace {

using test::secret_of;

constexpr std::uint32_t kLoopback = 0x7f000001;
constexpr auto kRepeats = std::chrono::seconds(20);
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

// ThreadSanitizer adds shadow memory of several times the memory that the program touches.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMemoryFactor = 6;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr std::uint64_t kMemoryFactor = 6;
#else
constexpr std::uint64_t kMemoryFactor = 1;
#endif
#else
constexpr std::uint64_t kMemoryFactor = 1;
#endif

/// A DishonestSender answers each Hello with an offer, and repeats one recorded datagram for
/// kRepeats.
///
/// Threads: a thread of its own, which the destructor ends.
class DishonestSender {
 public:
  explicit DishonestSender(std::uint64_t image_bytes)
      : socket_(std::move(*Socket::open({kLoopback, 0}, 1))), datagrams_(secret_of(1)) {
    const std::uint64_t units = (image_bytes + kUnitBytes - 1) / kUnitBytes;
    offer_.image_bytes = image_bytes;
    offer_.units = static_cast<std::uint32_t>(units + (units + Manifest::kDigestsInUnit - 1) /
                                                          Manifest::kDigestsInUnit);
    offer_.cells = 1;
    offer_.group = 0xefff4d02;
    offer_.port = 47002;
    address_ = *socket_.own();
    const ByteSpan probe = datagrams_.seal(Probe{});
    recorded_.assign(probe.begin(), probe.end());
    thread_ = std::thread([this] { run(); });
  }
  ~DishonestSender() {
    ends_ = true;
    thread_.join();
  }
  const Address& address() const { return address_; }

 private:
  void run() {
    std::array<std::byte, kDatagramBytesMax> room;
    Address from;
    bool met = false;
    const auto until = std::chrono::steady_clock::now() + kRepeats;
    while (!ends_) {
      pollfd ready{socket_.fd(), POLLIN, 0};
      ::poll(&ready, 1, 20);
      while (const auto length = socket_.receive(room, from)) {
        const auto opened = datagrams_.open(ByteSpan(room).first(*length));
        if (!opened || !std::holds_alternative<Hello>(opened->message)) continue;
        offer_.to = opened->from;
        static_cast<void>(socket_.send(datagrams_.seal(offer_), from));
        met = true;
      }
      if (met && std::chrono::steady_clock::now() < until) {
        static_cast<void>(socket_.send(recorded_, from));
      }
    }
  }

  Socket socket_;
  Datagrams datagrams_;
  Address address_;
  Offer offer_;
  std::vector<std::byte> recorded_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

/// Returns the peak memory of this process since reset_peak(), in bytes.
std::uint64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}
void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5\n"; }

struct Outcome {
  Code code = Code::kInternal;
  std::uint64_t memory_bytes = 0;  ///< in addition to the memory before
  Duration took{};
  bool begun = false;
};

Outcome receive_of(const DishonestSender& sender, Duration patience) {
  ReceiveOptions options;
  options.group = secret_of(1);
  options.from = sender.address();
  options.own = {kLoopback, 0};
  options.patience = patience;
  Outcome outcome;
  options.begin = [&](std::uint64_t) {
    outcome.begun = true;
    return Status();
  };
  options.write = [](std::uint64_t, ByteSpan) { return Status(); };
  options.read = [](std::uint64_t, MutableByteSpan) { return Status(); };  // it may relay
  SystemClock clock;
  const Time begun = clock.now();
  reset_peak();
  const std::uint64_t before = peak_bytes();
  const auto report = receive(options, clock);
  REQUIRE_FALSE(report);
  outcome.code = report.error().code;
  outcome.memory_bytes = peak_bytes() - before;
  outcome.took = clock.now() - begun;
  return outcome;
}

TEST_CASE("an offer of an image that is longer than the receiver takes is refused at once") {
  const DishonestSender sender((std::uint64_t{2} << 40U) - kUnitBytes);
  const Outcome outcome = receive_of(sender, std::chrono::seconds(20));
  CHECK(outcome.code == Code::kTooLarge);
  CHECK(outcome.memory_bytes < kMemoryFactor * 16 * kMiB);
  CHECK_FALSE(outcome.begun);
}

TEST_CASE("an offer takes memory for digests only, and no file, before the root is proven") {
  const DishonestSender sender(kImageBytesMax);
  const Outcome outcome = receive_of(sender, std::chrono::seconds(3));
  CHECK(outcome.code == Code::kDeadline);
  CHECK(outcome.memory_bytes < kMemoryFactor * (kImageBytesMax / 512 + 32 * kMiB));
  CHECK_FALSE(outcome.begun);
}

TEST_CASE("a recorded datagram that comes again and again keeps no receiver waiting") {
  const DishonestSender sender(4 * kUnitBytes);
  const Outcome outcome = receive_of(sender, std::chrono::seconds(3));
  CHECK(outcome.code == Code::kDeadline);
  CHECK(outcome.took < kRepeats);
}

}  // namespace
}  // namespace stdchk::multicast
