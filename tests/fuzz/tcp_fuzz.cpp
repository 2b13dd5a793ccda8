// Plays a member that is not honest: it has proven its key, and puts any frames into the link. Only
// memory whose key the peer has may change. After the link's end no memory may change. On a trusted
// network the member also sends greetings and content in clear.

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
#include "transport/tcp/content_channel.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/frame.h"

using namespace stdchk;
using namespace stdchk::transport;
using secure::Keyring;
using secure::Role;
using tcp::ContentChannel;
using tcp::FrameHeader;
using tcp::FrameType;
using tcp::GrantContent;
using tcp::TcpEndpoint;
using tcp::TlsContext;
using tcp::TlsSession;

namespace {

/// Content up to this length goes inside TLS, also on a trusted network.
constexpr std::size_t kInside = FrameHeader::kInlineBytesMax;
constexpr std::size_t kClearBytesMax = 4096;  ///< of the part that makes content longer than that

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

/// A World holds the attacked end. All inputs for one kind of network share one World.
struct World {
  explicit World(bool network_is_trusted)
      : is_trusted(network_is_trusted), bytes(is_trusted ? kInside + kClearBytesMax : 4096) {
    STDCHK_ASSERT(endpoint->listen(side).has_value());
  }
  static std::shared_ptr<const Keyring> keyring(Role role) {
    return std::make_shared<const Keyring>(Keyring::of_root(Secret{}, secure::new_member(role)));
  }
  const bool is_trusted;
  const std::size_t bytes;  ///< of each region
  ManualClock clock;
  std::shared_ptr<const Keyring> client = keyring(Role::kClient);
  std::unique_ptr<TlsContext> context = std::move(*TlsContext::create(client, 1U << 20U));
  std::unique_ptr<TcpEndpoint> endpoint = std::move(*TcpEndpoint::create(
      clock, "127.0.0.1", 0, keyring(Role::kManager), {.trusted_network = is_trusted}));
  Side side;
  std::vector<std::byte> shared = std::vector<std::byte>(bytes);
  std::vector<std::byte> own = std::vector<std::byte>(bytes, std::byte{0x55});
  std::unique_ptr<MemoryRegion> region = std::move(*endpoint->register_memory(shared));
  std::unique_ptr<MemoryRegion> secret = std::move(*endpoint->register_memory(own));
};

constexpr std::size_t kOpenBytes = 32;  ///< at the end of World::own, for who presents a grant

/// A Check believes grants whose proof is the bytes that put_frame() sends, and takes them back now
/// and then.
struct Check final : WriteCheck {
  explicit Check(std::size_t region_bytes) : bytes(region_bytes) {}
  bool present(const Grant& grant) override {
    presented = grant.proof_low == 0xAAAAAAAAAAAAAAAA && grant.offset <= bytes;
    return presented;
  }
  bool may_write(std::uint64_t offset, std::uint64_t length) override {
    return presented && offset >= bytes - kOpenBytes && length <= bytes - offset;
  }
  std::uint64_t revision() const override { return taken; }
  void take_back() {
    presented = false;
    ++taken;
  }
  const std::size_t bytes;
  bool presented = false;
  std::uint64_t taken = 0;
};

class Play {
 public:
  Play(World& world, fuzz::Choices& choices, unsigned destroy_in)
      : world_(world), choices_(choices) {
    tls_ = std::make_unique<TlsSession>(*world_.context, connect(), world_.client->to_manager());
    world_.side.closed = false;
    world_.side.destroy_in = destroy_in;
  }
  ~Play() {
    channel_.reset();
    tls_.reset();
    world_.side.link.reset();
    for (int i = 0; i < 4; ++i) world_.endpoint->poll();
  }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  void run() {
    TlsSession::Proof proof = TlsSession::Proof::kUnfinished;
    for (int i = 0; i < 1000 && proof == TlsSession::Proof::kUnfinished; ++i) {
      proof = tls_->prove();
      world_.endpoint->poll();
    }
    if (proof != TlsSession::Proof::kProven) return;
    if (!choices_.flag()) hello();
    for (int steps = 0; steps < 64 && !choices_.empty(); ++steps) act();
    turn();
    STDCHK_ASSERT(std::ranges::all_of(std::span(world_.own).first(world_.bytes - kOpenBytes),
                                      [](std::byte b) { return b == std::byte{0x55}; }));
    if (world_.side.link == nullptr || world_.side.closed) {
      const std::vector<std::byte> before = world_.shared;
      put_frame({.type = FrameType::kWrite, .last = true, .length = 64, .key = key_.key}, 64);
      put_clear();
      turn();
      STDCHK_ASSERT(before == world_.shared);
    }
  }

 private:
  int connect() const {
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
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return socket;
  }
  void hello() {
    put_frame({.type = FrameType::kHello, .id = secure::kProtocolVersion}, 0);
    if (world_.is_trusted) open_channel();
    for (int i = 0; i < 100 && world_.side.link == nullptr; ++i) world_.endpoint->poll();
    if (world_.side.link == nullptr) return;
    key_ = world_.side.link->share(*world_.region);
    checked_ = world_.side.link->share_checked(*world_.secret, check_);
  }
  /// Greets for the content channel. The token may be wrong, and the greeting incomplete.
  void open_channel() {
    if (channel_ != nullptr) return;
    std::array<std::byte, ContentChannel::kGreetingBytes> greeting{ContentChannel::kFirstByte};
    const Secret token = tls_->derived("EXPORTER-stdchk content channel");
    std::ranges::copy(token.bytes, greeting.begin() + 1);
    std::size_t length = greeting.size();
    const unsigned flaw = choices_.below(8);
    if (flaw == 1) greeting[choices_.below(greeting.size())] ^= std::byte{1};
    if (flaw == 2) length = choices_.below(greeting.size());
    const int socket = connect();
    (void)::send(socket, greeting.data(), length, MSG_NOSIGNAL);
    channel_ = std::make_unique<ContentChannel>(
        socket, tls_->derived("EXPORTER-stdchk content of who connects"),
        tls_->derived("EXPORTER-stdchk content of who accepts"));
  }
  /// Announces content on the channel.
  void announce() {
    const bool is_write = choices_.flag();
    FrameHeader made{.type = is_write ? FrameType::kWrite : FrameType::kReadData};
    made.last = is_write && choices_.flag();
    made.length = static_cast<std::uint32_t>(kInside + 1 + choices_.byte() * 16U);
    made.id = (choices_.below(4) + 1ULL) << 8 | choices_.below(4);
    if (is_write) made.key = choices_.byte() < 16 ? checked_.key : key_.key;
    made.offset = choices_.byte() * 16U;
    put_frame(made, 0);
  }
  /// Sends content on the channel: with a tag, without a tag, or a part of it.
  void put_clear() {
    if (channel_ == nullptr || channel_->is_sending()) return;
    std::vector<std::byte> content(kInside + 1 + choices_.byte() * 16U, std::byte{0xAA});
    if (choices_.flag()) {
      const std::size_t length = choices_.flag() ? content.size() : choices_.byte();
      (void)::send(channel_->socket(), content.data(), length, MSG_NOSIGNAL);
      return;
    }
    channel_->begin_send(tcp::Pieces(content));
    // A frame that the socket does not take now would need `content` later.
    if (channel_->send() == ContentChannel::Io::kBlocked) channel_.reset();
  }
  /// Connects without a proof, and says anything.
  void visit() {
    std::vector<std::byte> said{ContentChannel::kFirstByte};
    const ByteSpan more = choices_.bytes(choices_.below(64));
    said.insert(said.end(), more.begin(), more.end());
    const int socket = connect();
    const std::size_t skipped = choices_.flag() ? 1 : 0;
    (void)::send(socket, said.data() + skipped, said.size() - skipped, MSG_NOSIGNAL);
    turn();
    ::close(socket);
  }
  void turn() {
    for (int i = 0; i < 64 && (world_.endpoint->poll() || i < 4); ++i) {
    }
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
    switch (choices_.below(world_.is_trusted ? 14 : 10)) {
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
                   .offset = world_.bytes - kOpenBytes - 8 + choices_.byte() % 16},
                  choices_.flag() ? length : 1);
        turn();
        if (choices_.flag()) check_->take_back();
        return;
      }
      case 10:
        return open_channel();
      case 11:
        return announce();
      case 12:
        return put_clear();
      case 13:
        return visit();
      default:
        return turn();
    }
  }
  /// The victim writes to, or reads from, the peer.
  void start() {
    Link* const link = world_.side.link.get();
    if (link == nullptr || used_ == copies_.size()) return;
    const std::size_t length =
        1U +
        (world_.is_trusted && choices_.flag() ? kInside + choices_.byte() * 16U : choices_.byte());
    const std::array pieces{LocalPiece{world_.shared.data(), length, world_.region.get()}};
    const RemoteKey theirs{.key = 1, .base = 0, .length = world_.bytes};
    const bool started = choices_.flag()
                             ? link->write(pieces, theirs, 0, copies_[used_]).has_value()
                             : link->read(pieces, theirs, 0, copies_[used_]).has_value();
    if (started) ++used_;
    turn();
  }

  World& world_;
  fuzz::Choices& choices_;
  std::unique_ptr<TlsSession> tls_;
  std::unique_ptr<ContentChannel> channel_;  ///< the peer's end
  std::shared_ptr<Check> check_ = std::make_shared<Check>(world_.bytes);
  RemoteKey key_;
  RemoteKey checked_;
  std::array<Copy, 8> copies_;
  std::size_t used_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // No World is ever destroyed, because a region must not end before its endpoint.
  static World& world = *new World(false);
  static World& trusted = *new World(true);
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  const unsigned first = choices.byte();
  const bool is_trusted = first / 8 % 8 == 1;
  Play(is_trusted ? trusted : world, choices, first % 8).run();
  return 0;
}
