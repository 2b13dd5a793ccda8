// Plays a member that is not honest: it has proven its key, and puts any frames into the link. Only
// memory whose key the peer has may change. After the link's end no memory may change.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/assert.h"
#include "tests/fuzz/choices.h"
#include "transport/secure/handshake.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/frame.h"

using namespace stdchk;
using namespace stdchk::transport;
using secure::Keyring;
using secure::Role;
using tcp::FrameHeader;
using tcp::FrameType;
using tcp::GrantContent;
using tcp::TcpEndpoint;
using tcp::TlsContext;
using tcp::TlsSession;

namespace {

constexpr std::size_t kBytes = 4096;

struct Copy final : Operation {
  void complete(Status) override {}
};

struct Side final : LinkHandler, AcceptHandler {
  void on_connected(Link&) override {}
  void on_message(Link&, ByteSpan) override {
    if (--destroy_in == 0) link.reset();
  }
  void on_closed(Link&, Error) override { closed = true; }
  void on_accept(std::unique_ptr<Link> taken) override {
    link = std::move(taken);
    link->set_handler(*this);
  }
  std::unique_ptr<Link> link;
  unsigned destroy_in = 0;
  bool closed = false;
};

/// The victim, the same for all inputs.
struct World {
  World() { STDCHK_ASSERT(endpoint->listen(side).has_value()); }
  static std::shared_ptr<const Keyring> keyring(Role role) {
    return std::make_shared<const Keyring>(Keyring::of_root(Secret{}, secure::new_member(role)));
  }
  ManualClock clock;
  std::shared_ptr<const Keyring> client = keyring(Role::kClient);
  std::unique_ptr<TlsContext> context = std::move(*TlsContext::create(client, 1U << 20U));
  std::unique_ptr<TcpEndpoint> endpoint =
      std::move(*TcpEndpoint::create(clock, "127.0.0.1", 0, keyring(Role::kManager), {}));
  Side side;
  std::vector<std::byte> shared = std::vector<std::byte>(kBytes);
  std::vector<std::byte> own = std::vector<std::byte>(kBytes, std::byte{0x55});
  std::unique_ptr<MemoryRegion> region = std::move(*endpoint->register_memory(shared));
  std::unique_ptr<MemoryRegion> secret = std::move(*endpoint->register_memory(own));
};

constexpr std::size_t kOpenBytes = 32;  ///< at the end of World::own, for who presents a grant

/// A Check believes grants whose proof is the bytes that put_frame() sends, and takes them back now
/// and then.
struct Check final : WriteCheck {
  bool present(const Grant& grant) override {
    presented = grant.proof_low == 0xAAAAAAAAAAAAAAAA && grant.offset <= kBytes;
    return presented;
  }
  bool may_write(std::uint64_t offset, std::uint64_t length) override {
    return presented && offset >= kBytes - kOpenBytes && length <= kBytes - offset;
  }
  std::uint64_t revision() const override { return taken; }
  void take_back() {
    presented = false;
    ++taken;
  }
  bool presented = false;
  std::uint64_t taken = 0;
};

class Play {
 public:
  Play(World& world, fuzz::Choices& choices) : world_(world), choices_(choices) {
    const std::string address = world_.endpoint->address();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    STDCHK_ASSERT(::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    const timeval patience{0, 1000};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    tls_ = std::make_unique<TlsSession>(*world_.context, socket, world_.client->to_manager());
    world_.side.closed = false;
    world_.side.destroy_in = choices_.below(8);
  }
  ~Play() {
    tls_.reset();
    world_.side.link.reset();
    for (int i = 0; i < 4; ++i) world_.endpoint->poll();
  }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  void run() {
    for (int i = 0; i < 1000 && tls_->prove() == TlsSession::Proof::kUnfinished; ++i) {
      world_.endpoint->poll();
    }
    if (!choices_.flag()) hello();
    for (int steps = 0; steps < 64 && !choices_.empty(); ++steps) act();
    turn();
    STDCHK_ASSERT(std::ranges::all_of(std::span(world_.own).first(kBytes - kOpenBytes),
                                      [](std::byte b) { return b == std::byte{0x55}; }));
    if (world_.side.link == nullptr || world_.side.closed) {
      const std::vector<std::byte> before = world_.shared;
      put_frame({.type = FrameType::kWrite, .last = true, .length = 64, .key = key_.key}, 64);
      turn();
      STDCHK_ASSERT(before == world_.shared);
    }
  }

 private:
  void hello() {
    put_frame({.type = FrameType::kHello, .id = secure::kProtocolVersion}, 0);
    for (int i = 0; i < 100 && world_.side.link == nullptr; ++i) world_.endpoint->poll();
    if (world_.side.link == nullptr) return;
    key_ = world_.side.link->share(*world_.region);
    checked_ = world_.side.link->share_checked(*world_.secret, check_);
  }
  void turn() {
    for (int i = 0; i < 4; ++i) world_.endpoint->poll();
    world_.clock.advance(std::chrono::milliseconds(10));
  }
  void put(ByteSpan bytes) {
    while (!bytes.empty()) {
      const ByteSpan part = bytes.first(std::min(bytes.size(), TlsSession::kRecordBytesMax));
      if (!tls_->has_room() || !tls_->write(part)) return;
      if (tls_->flush() == TlsSession::Io::kLost) return;
      bytes = bytes.subspan(part.size());
    }
  }
  void put_frame(const FrameHeader& header, std::size_t content) {
    const auto head = header.encode();
    std::vector<std::byte> all(head.begin(), head.end());
    all.resize(all.size() + content, std::byte{0xAA});
    put(all);
  }
  FrameHeader header() {
    FrameHeader made{.type = static_cast<FrameType>(choices_.below(8))};
    made.last = choices_.flag();
    made.length = choices_.flag() ? choices_.byte() : static_cast<std::uint32_t>(choices_.number());
    made.id = choices_.flag() ? (choices_.below(4) + 1ULL) << 8 : choices_.number();
    const std::array keys{key_.key, checked_.key, choices_.number()};
    made.key = keys[choices_.below(keys.size())];
    made.offset = choices_.flag() ? choices_.byte() : choices_.number();
    return made;
  }
  void act() {
    switch (choices_.below(10)) {
      case 0:
        return put(choices_.bytes(choices_.byte()));
      case 1: {
        const FrameHeader any = header();
        return put_frame(any, any.length % 512);
      }
      case 2: {
        const std::uint32_t length = 1U + choices_.byte();
        return put_frame({.type = FrameType::kWrite,
                          .last = choices_.flag(),
                          .length = length,
                          .id = choices_.byte(),
                          .key = key_.key,
                          .offset = choices_.byte() * 16U},
                         length);
      }
      case 3:
        return put_frame({.type = FrameType::kRead,
                          .length = 1U + choices_.byte(),
                          .id = choices_.byte(),
                          .key = key_.key,
                          .offset = choices_.byte()},
                         0);
      case 4: {
        const std::uint32_t length = choices_.byte();
        return put_frame({.type = FrameType::kMessage, .length = length}, length);
      }
      case 5:
        return start();
      case 6:
        return put_frame({.type = choices_.flag() ? FrameType::kWritten : FrameType::kReadData,
                          .length = choices_.byte(),
                          .id = (choices_.below(4) + 1ULL) << 8 | choices_.below(4)},
                         choices_.byte());
      case 7:
        return put_frame({.type = FrameType::kGrant,
                          .length = GrantContent::kBytes,
                          .id = choices_.byte(),
                          .key = choices_.byte() < 4 ? key_.key : checked_.key,
                          .offset = choices_.byte()},
                         GrantContent::kBytes);
      case 8: {
        const std::uint32_t length = 1U + choices_.byte() % (2 * kOpenBytes);
        put_frame({.type = FrameType::kWrite,
                   .last = true,
                   .length = length,
                   .key = checked_.key,
                   .offset = kBytes - kOpenBytes - 8 + choices_.byte() % 16},
                  choices_.flag() ? length : 1);
        turn();
        if (choices_.flag()) check_->take_back();
        return;
      }
      default:
        return turn();
    }
  }
  /// The victim writes to, or reads from, the peer.
  void start() {
    Link* const link = world_.side.link.get();
    if (link == nullptr || used_ == copies_.size()) return;
    const std::array pieces{
        LocalPiece{world_.shared.data(), 1U + choices_.byte(), world_.region.get()}};
    const RemoteKey theirs{.key = 1, .base = 0, .length = kBytes};
    const bool started = choices_.flag()
                             ? link->write(pieces, theirs, 0, copies_[used_]).has_value()
                             : link->read(pieces, theirs, 0, copies_[used_]).has_value();
    if (started) ++used_;
    turn();
  }

  World& world_;
  fuzz::Choices& choices_;
  std::unique_ptr<TlsSession> tls_;
  std::shared_ptr<Check> check_ = std::make_shared<Check>();
  RemoteKey key_;
  RemoteKey checked_;
  std::array<Copy, 8> copies_;
  std::size_t used_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World& world = *new World;  // its region must not go before its endpoint
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  Play(world, choices).run();
  return 0;
}
