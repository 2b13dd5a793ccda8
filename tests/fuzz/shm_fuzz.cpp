// Plays a peer of the shm transport that writes arbitrary bytes into the socket of a link, in
// pieces, from either end. Messages must arrive whole and in order. Copies must go only to and from
// regions that the peer has announced. The link must end at the first invalid frame.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "tests/fuzz/choices.h"
#include "transport/message_limit.h"
#include "transport/shm/shm.h"

using namespace stdchk;
using namespace stdchk::transport;

namespace {

using Bytes = std::vector<std::byte>;

/// A second definition of the link's frames, to detect a change of the format.
enum class Kind : std::uint32_t { kHello = 1, kRegion = 2, kRegionGone = 3, kMessage = 4 };
struct Header {
  std::uint32_t kind = 0;
  std::uint32_t length = 0;
};
constexpr std::size_t kActionsMax = 64;  // fewer than the limit of announced regions

template <class T>
ByteSpan bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// An Expected is the meaning of a peer's bytes, computed from the whole stream.
class Expected {
 public:
  void add(ByteSpan bytes) {
    left_.insert(left_.end(), bytes.begin(), bytes.end());
    while (!broken && take()) {
    }
  }
  bool greeted = false;
  bool broken = false;
  std::vector<Bytes> messages;
  std::map<std::uint64_t, RemoteKey> regions;

 private:
  /// Takes one frame. False: the frame is incomplete or invalid.
  bool take() {
    Header header;
    if (left_.size() < sizeof(header)) return false;
    std::memcpy(&header, left_.data(), sizeof(header));
    if (header.length > kMessageBytesMax) return !(broken = true);
    if (left_.size() < sizeof(header) + header.length) return false;
    const auto begin = left_.begin() + sizeof(header);
    const Bytes body(begin, begin + header.length);
    left_.erase(left_.begin(), begin + header.length);
    broken = !obey(static_cast<Kind>(header.kind), body);
    return !broken;
  }
  bool obey(Kind kind, const Bytes& body) {
    RemoteKey key;
    const bool has_key = body.size() == sizeof(key);
    if (has_key) std::memcpy(&key, body.data(), sizeof(key));
    switch (kind) {
      case Kind::kHello:
        return !std::exchange(greeted, true);
      case Kind::kRegion:
        if (has_key) regions[key.key] = key;
        return has_key;
      case Kind::kRegionGone:
        if (has_key) regions.erase(key.key);
        return has_key;
      case Kind::kMessage:
        if (greeted) messages.push_back(body);
        return greeted;
    }
    return false;
  }
  Bytes left_;
};

struct Copy final : Operation {
  void complete(Status) override {}
};

/// The tested end of the link, as its owner sees it.
struct Side final : LinkHandler, AcceptHandler {
  void on_connected(Link&) override { ++connected; }
  void on_message(Link&, ByteSpan message) override {
    messages.emplace_back(message.begin(), message.end());
    if (messages.size() == destroy_at) link.reset();
  }
  void on_closed(Link&, Error) override { ++closed; }
  void on_accept(std::unique_ptr<Link> taken) override {
    STDCHK_ASSERT(link == nullptr);
    link = std::move(taken);
    link->set_handler(*this);
    ++connected;
  }
  std::unique_ptr<Link> link;
  std::vector<Bytes> messages;
  std::size_t destroy_at = 0;  ///< destroys the link within this message's callback
  int connected = 0;
  int closed = 0;
};

/// The peer's end: a socket, and memory in which its regions lie.
class Peer {
 public:
  Peer(Endpoint& endpoint, Side& side, bool connects) {
    socket_ = connects ? connect(endpoint, side) : accept(endpoint, side);
    STDCHK_ASSERT(socket_ >= 0);
    ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  }
  ~Peer() { close(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends as many bytes as the socket takes; returns their number.
  std::size_t put(ByteSpan bytes) {
    if (socket_ < 0 || bytes.empty()) return 0;
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  void take() {
    std::array<std::byte, 4096> ignored;
    while (socket_ >= 0 && ::recv(socket_, ignored.data(), ignored.size(), 0) > 0) {
    }
  }
  void end_writing() {
    if (socket_ >= 0) ::shutdown(socket_, SHUT_WR);
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  static socklen_t fill(sockaddr_un& to, const std::string& name) {
    to = {};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  static int connect(Endpoint& endpoint, Side& side) {
    STDCHK_ASSERT(endpoint.listen(side).has_value());
    sockaddr_un to;
    const socklen_t length = fill(to, endpoint.address().substr(sizeof("shm:") - 1));
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    STDCHK_ASSERT(::connect(fd, reinterpret_cast<const sockaddr*>(&to), length) == 0);
    return fd;
  }
  static int accept(Endpoint& endpoint, Side& side) {
    const std::string name = "stdchk-fuzz-" + std::to_string(::getpid());
    sockaddr_un at;
    const socklen_t length = fill(at, name);
    const int door = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    STDCHK_ASSERT(::bind(door, reinterpret_cast<const sockaddr*>(&at), length) == 0);
    STDCHK_ASSERT(::listen(door, 1) == 0);
    auto link = endpoint.connect("shm:" + name, side, limits::kConnectDeadline);
    STDCHK_ASSERT(link.has_value());
    side.link = std::move(*link);
    const int fd = ::accept(door, nullptr, nullptr);
    ::close(door);
    return fd;
  }
  int socket_ = -1;
};

class Play {
 public:
  explicit Play(ByteSpan bytes) : choices_(bytes) {
    auto opened = shm::open_shm(clock_);
    STDCHK_ASSERT(opened.has_value());
    endpoint_ = std::move(*opened);
    side_.destroy_at = choices_.below(8);
    const bool connects = choices_.flag();
    peer_ = std::make_unique<Peer>(*endpoint_, side_, connects);
    local_ = std::move(*endpoint_->register_memory(memory_));
  }
  ~Play() {
    side_.link.reset();
    local_.reset();
    more_.clear();
  }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  void run() {
    for (std::size_t i = 0; i < kActionsMax && !choices_.empty(); ++i) act();
    turn();
    check();
  }

 private:
  void act() {
    switch (choices_.below(12)) {
      case 0:
        return put(choices_.bytes(choices_.byte()));
      case 1:
        return frame(Kind::kHello, choices_.bytes(choices_.below(3)));
      case 2:
        return frame(Kind::kRegion, bytes_of(key()));
      case 3:
        return frame(Kind::kRegionGone, bytes_of(key()));
      case 4:
        return frame(Kind::kMessage, choices_.bytes(choices_.byte()));
      case 5:
        return long_message();
      case 6: {
        const std::uint64_t number = choices_.number();
        return put(bytes_of(Header{static_cast<std::uint32_t>(number >> 32) % 6,
                                   static_cast<std::uint32_t>(number)}));
      }
      case 7:
        return copy();
      case 8:
        return more_or_less();
      case 9:
        if (side_.link != nullptr) (void)side_.link->send(choices_.bytes(choices_.byte()));
        return;
      case 10:
        if (choices_.flag()) return peer_->take();
        return choices_.flag() ? peer_->close() : peer_->end_writing();
      default:
        return turn();
    }
  }

  void turn() {
    for (int i = 0; i < 4; ++i) endpoint_->poll();
    clock_.advance(std::chrono::milliseconds(10));
  }

  void put(ByteSpan bytes) {
    while (!bytes.empty()) {
      const std::size_t sent = peer_->put(bytes);
      expected_.add(bytes.first(sent));
      bytes = bytes.subspan(sent);
      if (sent > 0 || bytes.empty()) continue;
      // The socket is full or its other end has gone.
      endpoint_->poll();
      const std::size_t again = peer_->put(bytes);
      if (again == 0) return peer_->close();
      expected_.add(bytes.first(again));
      bytes = bytes.subspan(again);
    }
  }
  void frame(Kind kind, ByteSpan body) {
    Bytes whole;
    const Header header{static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(body.size())};
    for (const ByteSpan each : {bytes_of(header), body}) {
      whole.insert(whole.end(), each.begin(), each.end());
    }
    put(whole);
  }
  /// Sends a message of about the largest size, once per input, because it takes longer than all
  /// other actions.
  void long_message() {
    if (std::exchange(had_long_, true)) return;
    const Bytes body(kMessageBytesMax + 2 - choices_.below(4), std::byte{7});
    frame(Kind::kMessage, body);
  }
  /// A region within the peer's memory, or an arbitrary region.
  RemoteKey key() {
    RemoteKey key;
    key.key = choices_.below(4);
    if (choices_.flag()) {
      key.base = reinterpret_cast<std::uint64_t>(theirs_.data()) + choices_.byte();
      key.length = choices_.byte();
    } else {
      key.base = choices_.number();
      key.length = choices_.number();
    }
    return key;
  }

  /// Writes only to regions that the peer has announced. A read of any address is harmless here.
  void copy() {
    if (side_.link == nullptr) return;
    turn();
    if (side_.link == nullptr) return;
    const RemoteKey asked = key();
    const bool reads = choices_.flag();
    const std::uint64_t offset = choices_.flag() ? choices_.byte() : choices_.number();
    const std::array pieces{LocalPiece{memory_.data(), choices_.byte(), local_.get()}};
    const auto told = expected_.regions.find(asked.key);
    const bool fits = told != expected_.regions.end() && told->second == asked &&
                      offset <= asked.length && pieces[0].length <= asked.length - offset;
    const auto first = reinterpret_cast<std::uint64_t>(theirs_.data());
    const bool is_theirs = fits && asked.base >= first && asked.base - first <= theirs_.size() &&
                           asked.length <= theirs_.size() - (asked.base - first);
    if (fits && !is_theirs && !reads) return;
    const Bytes before(theirs_.begin(), theirs_.end());
    Copy operation;
    const Status started = reads ? side_.link->read(pieces, asked, offset, operation)
                                 : side_.link->write(pieces, asked, offset, operation);
    STDCHK_ASSERT(!started.has_value() || fits);
    if (!started.has_value() || reads) {
      STDCHK_ASSERT(std::ranges::equal(before, theirs_));
    } else {
      const auto at = static_cast<std::ptrdiff_t>(asked.base - first + offset);
      STDCHK_ASSERT(
          std::equal(memory_.begin(), memory_.begin() + pieces[0].length, theirs_.begin() + at));
    }
    while (operation.in_flight()) endpoint_->poll();
  }
  /// Registers or unregisters a region of ours, which the link announces to the peer.
  void more_or_less() {
    if (choices_.flag() || more_.empty()) {
      more_.push_back(std::move(*endpoint_->register_memory(memory_)));
    } else {
      more_.pop_front();
    }
  }

  void check() const {
    const std::size_t count = side_.messages.size();
    STDCHK_ASSERT(count <= expected_.messages.size());
    STDCHK_ASSERT(
        std::equal(side_.messages.begin(), side_.messages.end(), expected_.messages.begin()));
    STDCHK_ASSERT(side_.connected <= 1 && side_.closed <= 1);
    STDCHK_ASSERT(side_.connected == 0 || expected_.greeted);
    const bool owned = side_.link != nullptr;
    STDCHK_ASSERT(!owned || !side_.link->connected() || !expected_.broken);
    // All messages before the first invalid frame must arrive, unless the link was destroyed
    // meanwhile.
    STDCHK_ASSERT(!owned || side_.connected == 0 || count == expected_.messages.size());
  }

  fuzz::Choices choices_;
  ManualClock clock_;
  std::array<std::byte, 512> memory_{};
  std::array<std::byte, 512> theirs_{};
  std::unique_ptr<Endpoint> endpoint_;
  Side side_;
  std::unique_ptr<Peer> peer_;
  std::unique_ptr<MemoryRegion> local_;
  std::deque<std::unique_ptr<MemoryRegion>> more_;
  Expected expected_;
  bool had_long_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Play(ByteSpan(reinterpret_cast<const std::byte*>(data), size)).run();
  return 0;
}
