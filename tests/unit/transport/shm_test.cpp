#include <array>

#include "core/runtime/reactor.h"
#include "tests/unit/transport/link_pair.h"
#include "transport/choice/factory.h"
#include "transport/direct_memory.h"

namespace stdchk::transport {
namespace {

using namespace std::chrono_literals;

/// A ShmPair is a link between two endpoints of this process.
struct ShmPair {
  ShmPair() {
    REQUIRE(right_end->listen(right).has_value());
    auto connected = left_end->connect(right_end->address(), left, 1s);
    REQUIRE(connected.has_value());
    left.link = std::move(*connected);
    left_region = std::move(*left_end->register_memory(left_memory));
    right_region = std::move(*right_end->register_memory(right_memory));
    turn();
    REQUIRE(left.connected == 1);
    REQUIRE(right.link != nullptr);
  }
  static std::unique_ptr<Endpoint> open(Clock& clock) {
    auto made = open_endpoint("shm", EndpointOptions{.clock = &clock});
    REQUIRE(made.has_value());
    return std::move(*made);
  }
  void turn() {
    for (int i = 0; i < 20; ++i) {
      left_end->poll();
      right_end->poll();
    }
  }
  DirectMemoryPtr direct() {
    auto* readable = dynamic_cast<DirectlyReadable*>(left.link.get());
    REQUIRE(readable != nullptr);
    return readable->direct_memory(right.link->share(*right_region));
  }

  std::array<std::byte, 4096> left_memory{};
  std::array<std::byte, 4096> right_memory{};
  ManualClock clock;
  std::unique_ptr<Endpoint> left_end = open(clock);
  std::unique_ptr<Endpoint> right_end = open(clock);
  std::unique_ptr<MemoryRegion> left_region;
  std::unique_ptr<MemoryRegion> right_region;
  Side left;
  Side right;
};

TEST_CASE("a piece that does not lie in its region is refused, and nothing is copied") {
  ShmPair pair;
  pair.right_memory.fill(std::byte{7});
  Op op;
  const RemoteKey key = pair.right_region->remote_key();
  std::byte* const begin = pair.left_memory.data();
  for (const LocalPiece& piece :
       {LocalPiece{begin - 1, 2, pair.left_region.get()},
        LocalPiece{begin + 4095, 2, pair.left_region.get()},
        LocalPiece{begin, 4097, pair.left_region.get()},
        LocalPiece{begin + 5000, 1, pair.left_region.get()}, LocalPiece{begin, 1, nullptr}}) {
    const std::array pieces{piece};
    const Status read = pair.left.link->read(pieces, key, 0, op);
    REQUIRE(!read.has_value());
    REQUIRE(read.error().code == Code::kInvalidArgument);
    REQUIRE(!pair.left.link->write(pieces, key, 0, op).has_value());
  }
  pair.turn();
  REQUIRE(op.completions == 0);
  REQUIRE(pair.left_memory == std::array<std::byte, 4096>{});
  const std::array whole{LocalPiece{begin, 4096, pair.left_region.get()}};
  REQUIRE(pair.left.link->read(whole, key, 0, op).has_value());
  pair.turn();
  REQUIRE(op.completions == 1);
  REQUIRE(pair.left_memory == pair.right_memory);
}

TEST_CASE("a peer's region is read within the call, and never beyond its end") {
  ShmPair pair;
  const DirectMemoryPtr memory = pair.direct();
  REQUIRE(memory != nullptr);
  pair.right_memory[11] = std::byte{5};
  std::array<std::byte, 2> out{};
  REQUIRE(memory->read(10, out).has_value());
  REQUIRE(out[1] == std::byte{5});
  REQUIRE(!memory->read(4095, out).has_value());
  REQUIRE(!memory->read(~std::uint64_t{0}, out).has_value());
  auto* readable = dynamic_cast<DirectlyReadable*>(pair.left.link.get());
  RemoteKey unknown = pair.right_region->remote_key();
  unknown.length += 1;
  REQUIRE(readable->direct_memory(unknown) == nullptr);
}

TEST_CASE("a region that has ended is not read directly any more") {
  ShmPair pair;
  const DirectMemoryPtr memory = pair.direct();
  std::array<std::byte, 2> out{};
  const int how = GENERATE(0, 1, 2);
  CAPTURE(how);
  if (how == 0) pair.left.link.reset();
  if (how == 1) pair.right.link.reset();
  if (how == 2) pair.right_region.reset();
  pair.turn();
  const Status read = memory->read(0, out);
  REQUIRE(!read.has_value());
  REQUIRE(read.error().code == Code::kPeerLost);
}

}  // namespace
}  // namespace stdchk::transport
