// Attacks of strangers and of malicious members on the port of transport/tcp.
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "tests/attack/member.h"
#include "tests/attack/stranger.h"
#include "tests/support/catch.h"
#include "transport/secure/handshake.h"
#include "transport/tcp/endpoint.h"

namespace stdchk::attack {
namespace {

using namespace std::chrono_literals;
using transport::Link;
using transport::RemoteKey;
using transport::secure::Keyring;
using transport::secure::LinkName;
using transport::secure::Role;
using transport::tcp::FrameHeader;
using transport::tcp::FrameType;
using transport::tcp::Settings;
using transport::tcp::TcpEndpoint;
using transport::tcp::TcpLink;

constexpr std::size_t kLong =
    FrameHeader::kInlineBytesMax + 1;  ///< goes in clear, where that is so

std::atomic<std::int64_t> openssl_bytes{0};  ///< that OpenSSL holds

void* count(void* memory) {
  openssl_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}
void* counted_malloc(std::size_t bytes, const char*, int) { return count(std::malloc(bytes)); }
void counted_free(void* memory, const char*, int) {
  openssl_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void* counted_realloc(void* memory, std::size_t bytes, const char*, int) {
  openssl_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  return count(std::realloc(memory, bytes));
}
/// Only before OpenSSL has allocated anything.
const bool is_counted =
    CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free) == 1;

/// A client's name, and the key that belongs to it when the pool's secret is that of `seed`.
TlsOffer offer_of(int seed, std::size_t identity_bytes = LinkName::kBytes) {
  const Keyring keyring =
      Keyring::of_root(secret_of(seed), transport::secure::new_member(Role::kClient));
  const auto credential = keyring.to_manager();
  const LinkName::Bytes name = credential.name.encode();
  TlsOffer offer;
  offer.psk = derive(credential.key, "TLS 1.3 psk", name);
  offer.identity.assign(name.begin(), name.end());
  offer.identity.resize(identity_bytes);
  return offer;
}

/// Talks to the member from a thread of its own, and polls the member meanwhile.
void while_polled(Member& member, const std::function<void()>& talk) {
  std::atomic<bool> ended{false};
  std::thread stranger([&] {
    talk();
    ended = true;
  });
  const bool in_time = member.until([&] { return ended.load(); }, nullptr, 30s);
  stranger.join();
  REQUIRE(in_time);
}

/// True: the member has said its hello to who offers that, so it takes the peer for a member.
bool lets_in(Member& member, const TlsOffer& offer, TlsEnd* end = nullptr) {
  bool let_in = false;
  while_polled(member, [&] {
    const int socket = connect_to(member.endpoint->address());
    const TlsEnd ended = handshake(socket, true, offer, [&](SSL* ssl) {
      FrameHeader::Bytes hello{};
      std::size_t got = 0;
      let_in = SSL_read_ex(ssl, hello.data(), hello.size(), &got) == 1;
    });
    if (end != nullptr) *end = ended;
    ::close(socket);
  });
  return let_in;
}

/// Records the bytes that an honest member sends to connect.
std::vector<std::byte> recorded_greeting(Member& member) {
  std::vector<std::byte> bytes(1024);
  const Listener recorder([&](int socket) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  });
  Side side;
  side.link = std::move(*member.endpoint->connect(recorder.address(), side, 5s));
  REQUIRE(member.until([&] { return side.closed; }));
  REQUIRE(!side.connected);
  return bytes;
}

TEST_CASE("who has the key is let in, and who has another key is not") {
  Member member;
  CHECK(lets_in(member, offer_of(1)));  // or nothing that follows would mean anything
  CHECK(!lets_in(member, offer_of(2)));
  TlsOffer other_name = offer_of(1);
  other_name.identity[16] ^= std::byte{1};  // its key is another one
  CHECK(!lets_in(member, other_name));
  member.expect_served();
}

TEST_CASE("who offers no key, an old version or no key exchange is not let in") {
  Member member;
  CHECK(!lets_in(member, {}));
  CHECK(!lets_in(member, {.version = TLS1_2_VERSION}));
  CHECK(!lets_in(member, {.with_certificate = true}));
  TlsOffer other_group = offer_of(1);
  other_group.groups = "P-256";
  CHECK(!lets_in(member, other_group));
  other_group.without_dhe = true;
  CHECK(!lets_in(member, other_group));
  CHECK(member.sides.empty());
  member.expect_served();
}

TEST_CASE("one cipher suite is accepted, also from who has the key") {
  Member member;
  TlsOffer offer = offer_of(1);
  for (const char* const suite : {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}) {
    CAPTURE(suite);
    offer.suites = suite;
    CHECK(!lets_in(member, offer));
  }
  offer.suites = "TLS_AES_128_GCM_SHA256";
  CHECK(lets_in(member, offer));
  member.expect_served();
}

TEST_CASE("a member gives no ticket, so nobody resumes a connection without a new proof") {
  // OpenSSL gives tickets unless it is told not to.
  const TlsOffer offer = offer_of(1);
  const Listener other([&](int socket) {
    handshake(socket, false, offer, [](SSL* ssl) { SSL_write(ssl, "hello", 5); });
  });
  const int socket = connect_to(other.address());
  const TlsEnd usual = handshake(socket, true, offer, [](SSL* ssl) {
    std::array<char, 5> bytes;
    SSL_read(ssl, bytes.data(), bytes.size());
  });
  ::close(socket);
  REQUIRE(usual.resumed);
  REQUIRE(usual.tickets > 0);
  Member member;
  TlsEnd end;
  CHECK(lets_in(member, offer, &end));
  CHECK(end.tickets == 0);
}

TEST_CASE("a member takes no bytes before the handshake is over") {
  Member member;
  TlsOffer offer = offer_of(1);
  offer.early_data = true;
  TlsEnd end;
  CHECK(!lets_in(member, offer, &end));
  CHECK(end.early_data == SSL_EARLY_DATA_REJECTED);  // it was offered
  CHECK(member.sides.empty());
  member.expect_served();
}

TEST_CASE("a name of another length, or one that is no name, is refused") {
  Member member;
  for (const std::size_t bytes : {1U, 16U, 47U, 49U, 96U, 2000U}) {
    CHECK(!lets_in(member, offer_of(1, bytes)));
  }
  for (const std::size_t at : {0U, 1U, 2U, 7U, 8U, 32U}) {  // roles, zeros, epoch, who is meant
    TlsOffer offer = offer_of(1);
    offer.identity[at] = std::byte{9};
    CHECK(!lets_in(member, offer));
  }
  member.expect_served();
}

TEST_CASE("a member does not let itself in") {
  Member member;
  Side& side = member.connect(member);
  REQUIRE(member.until([&] { return side.closed; }));
  CHECK(!side.connected);
  CHECK(side.code == Code::kRefused);
}

TEST_CASE("who listens without the key is not believed, whatever its certificate") {
  Member member(Role::kClient);
  for (const bool with_certificate : {true, false}) {
    for (const bool with_other_key : {true, false}) {
      TlsOffer offer = with_other_key ? offer_of(2) : TlsOffer{};
      offer.with_certificate = with_certificate;
      std::size_t read = 0;
      const Listener listener([&](int socket) {
        handshake(socket, false, offer, [&](SSL* ssl) {
          std::array<char, 64> bytes;
          SSL_read_ex(ssl, bytes.data(), bytes.size(), &read);
        });
      });
      Side side;
      side.link = std::move(*member.endpoint->connect(listener.address(), side, 5s));
      REQUIRE(member.until([&] { return side.closed; }));
      CHECK(!side.connected);
      CHECK(read == 0);
    }
  }
}

TEST_CASE("a recorded connection says nothing a second time") {
  Member member;
  Member client(Role::kClient);
  const auto greeting = recorded_greeting(client);
  REQUIRE(greeting.size() > 100);
  const int socket = connect_to(member.endpoint->address());
  say(socket, greeting);
  say(socket, greeting);
  bool closed = false;
  while_polled(member, [&] { closed = is_closed_within(socket, 2); });
  CHECK(closed);
  CHECK(member.sides.empty());
  ::close(socket);
  member.expect_served();
}

TEST_CASE("what is no handshake ends the connection, and no more than 4 KiB of it is read") {
  Member member;
  std::vector<std::byte> junk(1 << 20);
  for (std::size_t i = 0; i < junk.size(); ++i) junk[i] = static_cast<std::byte>(i * 37 >> 3);
  // A handshake record that claims 16 KiB: OpenSSL would wait for all of it.
  const std::array<std::byte, 9> long_hello{std::byte{22},   std::byte{3},    std::byte{1},
                                            std::byte{0x3F}, std::byte{0xFF}, std::byte{1},
                                            std::byte{0},    std::byte{0x3F}, std::byte{0xF0}};
  for (const bool as_hello : {false, true}) {
    const int socket = connect_to(member.endpoint->address());
    bool closed = false;
    while_polled(member, [&] {
      if (as_hello) say(socket, long_hello);
      say(socket, ByteSpan(junk).first(8192));
      closed = is_closed_within(socket, 2);
    });
    CHECK(closed);
    ::close(socket);
  }
  CHECK(member.endpoint->arriving() == 0);
  member.expect_served();
}

TEST_CASE("who is silent, or says one byte a second, is gone after the deadline") {
  Member member(Role::kManager, {.prove_deadline = 1500ms});
  Member client(Role::kClient);
  const auto greeting = recorded_greeting(client);
  const int silent = connect_to(member.endpoint->address());
  const int slow = connect_to(member.endpoint->address());
  const auto began = std::chrono::steady_clock::now();
  bool silent_closed = false;
  bool slow_closed = false;
  while_polled(member, [&] {
    for (std::size_t i = 0; i < 5 && !slow_closed; ++i) {
      say(slow, ByteSpan(greeting).subspan(i, 1));
      slow_closed = is_closed_within(slow, 0.5);
    }
    silent_closed = is_closed_within(silent, 0.1);
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  CHECK(silent_closed);
  CHECK(slow_closed);
  CHECK(took.count() < 4);
  CHECK(member.endpoint->arriving() == 0);
  ::close(silent);
  ::close(slow);
}

TEST_CASE("a flood of connections is bounded, and members are served meanwhile") {
  Member member(Role::kManager, {.arriving_max = 64, .arriving_of_address_max = 32});
  Member client(Role::kClient);
  std::atomic<bool> ends{false};
  std::atomic<int> made{0};
  std::thread flood([&] {
    std::vector<int> held;
    while (!ends && made < 10000) {
      held.push_back(connect_to(member.endpoint->address()));
      ++made;
      if (held.size() > 200) {
        ::close(held.front());
        held.erase(held.begin());
      }
    }
    for (const int socket : held) ::close(socket);
  });
  std::size_t most = 0;
  int served = 0;
  member.until(
      [&] {
        most = std::max(most, member.endpoint->arriving());
        return made >= 2000;
      },
      nullptr, 60s);
  for (int i = 0; i < 5; ++i) {
    // A client tries again, as programs do.
    for (int tries = 0; tries < 20; ++tries) {
      Side& side = client.connect(member);
      member.until([&] { return side.connected || side.closed; }, &client);
      most = std::max(most, member.endpoint->arriving());
      if (!side.connected) continue;
      ++served;
      break;
    }
  }
  ends = true;
  flood.join();
  CHECK(most <= 32);
  CHECK(served == 5);
  member.until([] { return false; }, nullptr, 200ms);
}

TEST_CASE("a flood from many hosts is bounded in total") {
  Member member(Role::kManager, {.arriving_max = 16, .arriving_of_address_max = 8});
  constexpr std::uint8_t kHosts = 9;
  std::vector<int> held;
  std::size_t most = 0;
  for (int round = 0; round < 6; ++round) {
    for (std::uint8_t host = 1; host <= kHosts; ++host) {
      held.push_back(connect_to(member.endpoint->address(), host));
      member.until([] { return false; }, nullptr, 5ms);
      most = std::max(most, member.endpoint->arriving());
    }
  }
  CHECK(most == 16);  // no host reaches its own limit
  // A host with a single connection keeps it.
  held.push_back(connect_to(member.endpoint->address(), kHosts + 1));
  bool closed = true;
  while_polled(member, [&] { closed = is_closed_within(held.back(), 0.3); });
  CHECK_FALSE(closed);
  member.expect_served();
  for (const int socket : held) ::close(socket);
}

TEST_CASE("a connection that has proven nothing holds at most 64 KiB") {
  REQUIRE(is_counted);
  Member member;
  Member client(Role::kClient);
  const auto greeting = recorded_greeting(client);
  const std::int64_t before = openssl_bytes;
  std::vector<int> held;
  constexpr std::size_t kHeld = 50;
  // Half of the connections wait after an answer, the other half inside a record.
  for (std::size_t i = 0; i < kHeld; ++i) {
    held.push_back(connect_to(member.endpoint->address()));
    say(held.back(), i % 2 == 0 ? ByteSpan(greeting) : ByteSpan(greeting).first(200));
  }
  REQUIRE(member.until([&] { return member.endpoint->arriving() == kHeld; }));
  member.until([] { return false; }, nullptr, 200ms);
  const auto each = static_cast<std::size_t>(openssl_bytes - before) / kHeld;
  INFO("bytes of each: " << each);
  CHECK(each + sizeof(TcpLink) + sizeof(transport::tcp::TlsSession) < 64 * limits::kKiB);
  CHECK(each > 1000);  // it was counted
  for (const int socket : held) ::close(socket);
}

TEST_CASE("a process without descriptors does not spin, and takes connections again later") {
  Member member;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<int> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(connect_to(member.endpoint->address()));
  const rlimit none{3, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  int busy = 0;
  for (int i = 0; i < 100; ++i) {
    busy += member.endpoint->poll();
    pollfd wait{member.endpoint->fd(), POLLIN, 0};
    ::poll(&wait, 1, 5);
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(busy < 30);
  member.expect_served();
  for (const int socket : waiting) ::close(socket);
}

// ---- a member that is not honest ----------------------------------------------------------------

/// A frame of a malicious member, and the number of its content bytes.
struct Frame {
  FrameHeader header;
  std::size_t content = 0;
};

/// Logs in with the pool's key, and gets a key of 64 KiB of memory. Then sends the frames that
/// `make` makes of that key. Returns true when the member has closed the link.
bool ends_link(Member& member, const std::function<std::vector<Frame>(const RemoteKey&)>& make) {
  bool closed = false;
  const std::size_t before = member.sides.size();
  std::atomic<bool> has_key{false};
  std::atomic<bool> ended{false};
  RemoteKey key;
  std::thread peer([&] {
    const int socket = connect_to(member.endpoint->address());
    handshake(socket, true, offer_of(1), [&](SSL* ssl) {
      const auto put = [&](const FrameHeader& header, std::size_t content) {
        const auto bytes = header.encode();
        std::vector<std::byte> all(bytes.begin(), bytes.end());
        all.resize(all.size() + content, std::byte{0xEE});
        std::size_t written = 0;
        for (std::size_t at = 0; at < all.size(); at += written) {
          if (SSL_write_ex(ssl, all.data() + at, all.size() - at, &written) != 1) return;
        }
      };
      put({.type = FrameType::kHello, .id = transport::secure::kProtocolVersion}, 0);
      while (!has_key) ::usleep(1000);
      for (const Frame& frame : make(key)) put(frame.header, frame.content);
      std::array<std::byte, 4096> bytes;
      std::size_t got = 0;
      // Not closed: nothing comes within the patience of the socket.
      const timeval patience{1, 0};
      ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      while (SSL_read_ex(ssl, bytes.data(), bytes.size(), &got) == 1) {
      }
      closed = errno != EAGAIN;
    });
    ::close(socket);
    ended = true;
  });
  CHECK(member.until([&] { return member.sides.size() > before || ended; }));
  if (member.sides.size() > before) key = member.sides.back()->link->share(*member.region);
  has_key = true;
  CHECK(member.until([&] { return ended.load(); }, nullptr, 20s));
  peer.join();
  return closed;
}

TEST_CASE("a frame that no honest member sends ends the link and changes no memory") {
  Member member;
  std::ranges::fill(member.memory, std::byte{0x11});
  const auto unchanged = [&] {
    return std::ranges::all_of(member.memory,
                               [](std::byte each) { return each == std::byte{0x11}; });
  };
  using Make = std::function<std::vector<Frame>(const RemoteKey&)>;
  const auto one = [](FrameHeader header, std::size_t content = 0) {
    return std::vector<Frame>{{header, content}};
  };
  const std::map<std::string, Make> attacks{
      {"write, another key",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kWrite, .length = 8, .id = 1, .key = key.key ^ 1}, 8);
       }},
      {"write, behind the end",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kWrite, .length = 8, .key = key.key, .offset = kBytes - 7},
                    8);
       }},
      {"write, an offset that overflows",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kWrite, .length = 16, .key = key.key, .offset = ~0ULL - 7},
                    16);
       }},
      {"write of nothing",
       [&](const RemoteKey& key) { return one({.type = FrameType::kWrite, .key = key.key}); }},
      {"write of more than a frame",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kWrite,
                     .length = FrameHeader::kContentBytesMax + 1,
                     .key = key.key});
       }},
      {"read, another key",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kRead, .length = 8, .key = key.key + 1});
       }},
      {"read, behind the end",
       [&](const RemoteKey& key) {
         return one({.type = FrameType::kRead, .length = kBytes + 1, .key = key.key});
       }},
      {"proof of a write that was not made",
       [&](const RemoteKey&) { return one({.type = FrameType::kWritten, .id = 256}); }},
      {"data of a read that was not made",
       [&](const RemoteKey&) { return one({.type = FrameType::kReadData, .length = 8}, 8); }},
      {"a second hello",
       [&](const RemoteKey&) { return one({.type = FrameType::kHello, .id = 1}); }},
      {"a message that is too long",
       [&](const RemoteKey&) { return one({.type = FrameType::kMessage, .length = 1 << 20}); }},
      {"a message with an offset",
       [&](const RemoteKey&) {
         return one({.type = FrameType::kMessage, .length = 1, .offset = 1}, 1);
       }},
      {"a type that does not exist",
       [&](const RemoteKey&) { return one({.type = static_cast<FrameType>(8)}); }},
      {"type zero", [&](const RemoteKey&) { return one({.type = static_cast<FrameType>(0)}); }},
  };
  for (const auto& [name, make] : attacks) {
    INFO(name);
    CHECK(ends_link(member, make));
    CHECK(unchanged());
  }
  member.expect_served();
}

TEST_CASE("what an honest member sends does not end the link") {
  Member member;
  const auto honest = [](const RemoteKey& key) {
    return std::vector<Frame>{
        {{.type = FrameType::kMessage, .length = 5}, 5},
        {{.type = FrameType::kWrite, .length = 8, .id = 1, .key = key.key, .offset = kBytes - 8},
         8},
        {{.type = FrameType::kRead, .length = 8, .id = 2, .key = key.key}, 0}};
  };
  CHECK(!ends_link(member, honest));
  CHECK(member.memory[kBytes - 8] == std::byte{0xEE});
  CHECK(member.memory[kBytes - 9] == std::byte{0});
}

TEST_CASE("a member that reads no answers has 128 of them kept, and then no link") {
  Member member;
  const auto greedy = [](const RemoteKey& key) {
    return std::vector<Frame>(
        4000, {{.type = FrameType::kRead, .length = kBytes, .id = 2, .key = key.key}, 0});
  };
  CHECK(ends_link(member, greedy));
  member.expect_served();
}

TEST_CASE("each direction has a new key before the limit of records") {
  const Settings settings{.records_max = 10};
  Member member(Role::kManager, settings);
  Member client(Role::kClient, settings);
  Side& side = client.connect(member);
  REQUIRE(member.until([&] { return side.connected && !member.sides.empty(); }, &client));
  for (std::size_t i = 1; i <= 100; ++i) {
    REQUIRE(side.link->send(std::as_bytes(std::span("once"))).has_value());
    REQUIRE(member.until([&] { return member.sides[0]->messages.size() == i; }, &client));
    REQUIRE(member.sides[0]->link->send(std::as_bytes(std::span("twice"))).has_value());
    REQUIRE(member.until([&] { return side.messages.size() == i; }, &client));
  }
  for (const Link* link : {side.link.get(), member.sides[0]->link.get()}) {
    const auto& tls = static_cast<const TcpLink*>(link)->tls();
    CHECK(tls.key_updates_sent() >= 10);
    CHECK(tls.key_updates_received() >= 10);
  }
}

TEST_CASE("who makes no new key within the limit of records loses its link") {
  Member member(Role::kManager, {.records_max = 10});
  const auto many = [](const RemoteKey&) {
    return std::vector<Frame>(20, {{.type = FrameType::kMessage, .length = 1}, 1});
  };
  CHECK(ends_link(member, many));
}

// ---- content in clear ---------------------------------------------------------------------------

using transport::tcp::ContentChannel;
using transport::tcp::ContentTag;
using transport::tcp::Pieces;

/// A connection of two sockets, with a test in the middle that passes bytes on.
struct Channels {
  Channels() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, from.data()) == 0);
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, to.data()) == 0);
    sender = std::make_unique<ContentChannel>(from[0], secret_of(1), secret_of(2));
    receiver = std::make_unique<ContentChannel>(to[0], secret_of(2), secret_of(1));
  }
  ~Channels() {
    ::close(from[1]);
    ::close(to[1]);
  }
  std::vector<std::byte> sent(std::byte fill) {
    std::vector<std::byte> content(1000, fill);
    sender->begin_send(Pieces(MutableByteSpan(content)));
    REQUIRE(sender->send() == ContentChannel::Io::kDone);
    std::vector<std::byte> wire(1000 + ContentTag::kBytes);
    REQUIRE(::recv(from[1], wire.data(), wire.size(), 0) == static_cast<ssize_t>(wire.size()));
    return wire;
  }
  ContentChannel::Io receive(ByteSpan wire) {
    say(to[1], wire);
    std::vector<std::byte> content(1000);
    receiver->begin_receive(Pieces(MutableByteSpan(content)));
    return receiver->receive();
  }
  std::array<int, 2> from{};
  std::array<int, 2> to{};
  std::unique_ptr<ContentChannel> sender;
  std::unique_ptr<ContentChannel> receiver;
};

TEST_CASE("content that was changed, left out or repeated is not taken") {
  {
    Channels good;
    const auto first = good.sent(std::byte{1});
    const auto second = good.sent(std::byte{2});
    CHECK(good.receive(first) == ContentChannel::Io::kDone);
    CHECK(good.receive(second) == ContentChannel::Io::kDone);
    CHECK(good.receive(second) == ContentChannel::Io::kLost);
  }
  for (const std::size_t at :
       {std::size_t{0}, std::size_t{999}, std::size_t{1000}, std::size_t{1015}}) {
    Channels changed;
    auto wire = changed.sent(std::byte{1});
    wire[at] ^= std::byte{1};
    CHECK(changed.receive(wire) == ContentChannel::Io::kLost);
  }
  Channels left_out;
  left_out.sent(std::byte{1});
  CHECK(left_out.receive(left_out.sent(std::byte{2})) == ContentChannel::Io::kLost);
}

TEST_CASE("who offers another token, or a part of one, gets no link's content channel") {
  Member member(Role::kManager, {.trusted_network = true, .prove_deadline = 1s});
  CHECK(!lets_in(member, offer_of(2)));
  std::vector<std::byte> greeting(ContentChannel::kGreetingBytes);
  greeting[0] = ContentChannel::kFirstByte;
  bool closed = false;
  const int whole = connect_to(member.endpoint->address());
  while_polled(member, [&] {
    say(whole, greeting);
    closed = is_closed_within(whole, 0.5);
  });
  CHECK(closed);
  // A part of one keeps nobody awake.
  const int part = connect_to(member.endpoint->address());
  say(part, ByteSpan(greeting).first(5));
  int busy = 0;
  for (int i = 0; i < 60; ++i) {
    busy += member.endpoint->poll();
    ::usleep(5000);
  }
  CHECK(busy < 20);
  CHECK(member.until([&] { return member.endpoint->arriving() == 0; }, nullptr, 3s));
  ::close(whole);
  ::close(part);
  member.expect_served();
}

/// A member that opens its content channel by hand. `talk` gets the key of memory, a function that
/// sends frames inside TLS, and the channel's socket.
using Put = std::function<void(const FrameHeader&)>;
void with_channel(Member& member,
                  const std::function<void(const RemoteKey&, const Put&, int)>& talk) {
  std::atomic<bool> has_key{false};
  std::atomic<bool> ended{false};
  const std::size_t before = member.sides.size();
  RemoteKey key;
  std::thread peer([&] {
    const int socket = connect_to(member.endpoint->address());
    handshake(socket, true, offer_of(1), [&](SSL* ssl) {
      const Put put = [&](const FrameHeader& header) {
        const auto bytes = header.encode();
        std::size_t written = 0;
        SSL_write_ex(ssl, bytes.data(), bytes.size(), &written);
      };
      put({.type = FrameType::kHello, .id = transport::secure::kProtocolVersion});
      std::array<std::byte, ContentChannel::kGreetingBytes> greeting{ContentChannel::kFirstByte};
      const std::string use = "EXPORTER-stdchk content channel";
      SSL_export_keying_material(ssl, reinterpret_cast<unsigned char*>(greeting.data() + 1), 32,
                                 use.data(), use.size(), nullptr, 0, 0);
      const int channel = connect_to(member.endpoint->address());
      say(channel, greeting);
      while (!has_key) ::usleep(1000);
      talk(key, put, channel);
      ::close(channel);
    });
    ::close(socket);
    ended = true;
  });
  CHECK(member.until([&] { return member.sides.size() > before || ended; }));
  if (member.sides.size() > before) key = member.sides.back()->link->share(*member.region);
  has_key = true;
  CHECK(member.until([&] { return ended.load(); }, nullptr, 20s));
  peer.join();
}

TEST_CASE("content without its tag ends the link and is not proven") {
  Member member(Role::kManager, {.trusted_network = true});
  bool closed = false;
  with_channel(member, [&](const RemoteKey& key, const Put& put, int channel) {
    put({.type = FrameType::kWrite, .last = true, .length = kLong, .id = 256, .key = key.key});
    say(channel, std::vector<std::byte>(kLong + ContentTag::kBytes, std::byte{0xEE}));
    closed = is_closed_within(channel, 3);
  });
  CHECK(closed);
  CHECK(std::ranges::all_of(std::span(member.memory).subspan(kLong),
                            [](std::byte each) { return each == std::byte{0}; }));
  member.expect_served();
}

TEST_CASE("what overtakes a part of its own transfer ends the link") {
  Member member(Role::kManager, {.trusted_network = true});
  bool closed = false;
  with_channel(member, [&](const RemoteKey& key, const Put& put, int channel) {
    put({.type = FrameType::kWrite, .length = kLong, .id = 256, .key = key.key});
    put({.type = FrameType::kWrite, .last = true, .length = 8, .id = 256, .key = key.key});
    closed = is_closed_within(channel, 3);
  });
  CHECK(closed);
  CHECK(std::ranges::all_of(member.memory, [](std::byte each) { return each == std::byte{0}; }));
}

TEST_CASE("content that nobody has announced changes nothing and keeps nobody awake") {
  Member member(Role::kManager, {.trusted_network = true});
  int busy = 0;
  with_channel(member, [&](const RemoteKey&, const Put&, int channel) {
    say(channel, std::vector<std::byte>(100'000, std::byte{0xEE}));
    ::usleep(100'000);
    busy = member.busy_polls;
    ::usleep(300'000);
    busy = member.busy_polls - busy;
  });
  CHECK(std::ranges::all_of(member.memory, [](std::byte each) { return each == std::byte{0}; }));
  CHECK(busy < 50);
  member.expect_served();
}

TEST_CASE("a key for reading opens memory for reads, and a write with it ends the link") {
  Member target(Role::kManager);
  target.memory.assign(kBytes, std::byte{0x5A});
  Member other(Role::kClient);
  Side& side = other.connect(target);
  REQUIRE(target.until([&] { return side.connected && !target.sides.empty(); }, &other));
  const RemoteKey key = target.sides.back()->link->share_for_reading(*target.region);
  CHECK_FALSE(key == target.sides.back()->link->share(*target.region));
  const std::array pieces{transport::LocalPiece{other.memory.data(), kBytes, other.region.get()}};
  Sent read;
  REQUIRE(side.link->read(pieces, key, 0, read).has_value());
  REQUIRE(target.until([&] { return read.ended; }, &other));
  CHECK(read.good);
  CHECK(other.memory == target.memory);
  other.memory.assign(kBytes, std::byte{0xEE});
  Sent write;
  REQUIRE(side.link->write(pieces, key, 0, write).has_value());
  REQUIRE(target.until([&] { return write.ended; }, &other));
  CHECK_FALSE(write.good);
  CHECK(target.memory == std::vector<std::byte>(kBytes, std::byte{0x5A}));
}

TEST_CASE("a link knows who is at its other end") {
  Member member;
  Member client(Role::kClient);
  Side& side = client.connect(member);
  REQUIRE(member.until([&] { return side.connected && !member.sides.empty(); }, &client));
  REQUIRE(member.sides[0]->link->peer() != nullptr);
  CHECK(member.sides[0]->link->peer()->member == client.keyring->self());
  CHECK(side.link->peer()->member == transport::secure::kAnyManager);
}

}  // namespace
}  // namespace stdchk::attack
