// Plays a stranger at either end of a TLS session before the proof: any bytes, alerts, and what a
// member says with changes. The session must admit no stranger, and read 4 KiB at most.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/assert.h"
#include "tests/fuzz/choices.h"
#include "transport/tcp/tls.h"

using namespace stdchk;
using namespace stdchk::transport;
using secure::Keyring;
using secure::Role;
using tcp::TlsContext;
using tcp::TlsSession;

namespace {

std::shared_ptr<const Keyring> keyring(Role role) {
  return std::make_shared<const Keyring>(Keyring::of_root(Secret{}, secure::new_member(role)));
}

/// The same for all inputs: a context takes longer to make than a session to break.
struct World {
  std::shared_ptr<const Keyring> manager = keyring(Role::kManager);
  std::shared_ptr<const Keyring> client = keyring(Role::kClient);
  std::unique_ptr<TlsContext> accepts = std::move(*TlsContext::create(manager, 100));
  std::unique_ptr<TlsContext> connects = std::move(*TlsContext::create(client, 100));
};

/// A session, and the stranger's end of the session's socket.
struct End {
  End(TlsContext& context, const secure::Credential* credential) {
    std::array<int, 2> sockets{};
    STDCHK_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()) == 0);
    socket = sockets[1];
    session = credential == nullptr
                  ? std::make_unique<TlsSession>(context, sockets[0])
                  : std::make_unique<TlsSession>(context, sockets[0], *credential);
  }
  ~End() { ::close(socket); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void turn() {
    if (failed) return;
    const TlsSession::Proof proof = session->prove();
    failed = proof == TlsSession::Proof::kFailed;
    proven |= proof == TlsSession::Proof::kProven;
  }
  /// `are_changed`: the other end has not said these bytes at this point.
  void put(ByteSpan bytes, bool are_changed) {
    changed |= are_changed && !proven;
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) told += static_cast<std::size_t>(sent);
    turn();
  }
  std::vector<std::byte> said() const {
    std::vector<std::byte> bytes(TlsSession::kProofBytesMax);
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  std::size_t unread() const {
    int bytes = 0;
    ::ioctl(session->socket(), FIONREAD, &bytes);
    return static_cast<std::size_t>(bytes);
  }

  int socket = -1;
  std::unique_ptr<TlsSession> session;
  std::size_t told = 0;
  bool failed = false;
  bool proven = false;
  bool changed = false;  ///< bytes before the proof were changed on their way
};

void play(fuzz::Choices& choices) {
  static World world;
  const secure::Credential credential = world.client->to_manager();
  End manager(*world.accepts, nullptr);
  End client(*world.connects, &credential);
  client.turn();
  for (int steps = 0; steps < 32 && !choices.empty(); ++steps) {
    End& to = choices.flag() ? manager : client;
    const End& from = &to == &manager ? client : manager;
    switch (choices.below(4)) {
      case 0: {  // any bytes
        const ByteSpan bytes = choices.bytes(choices.byte());
        to.put(bytes, !bytes.empty());
        break;
      }
      case 1: {  // an alert
        const std::array alert{std::byte{21},
                               std::byte{3},
                               std::byte{3},
                               std::byte{0},
                               std::byte{2},
                               std::byte{choices.byte()},
                               std::byte{choices.byte()}};
        // An alert is no part of the handshake: it ends the session, or OpenSSL ignores it. OpenSSL
        // ignores user_canceled, and warnings before the version is agreed (RFC 8446, section 6).
        to.put(alert, false);
        break;
      }
      case 2: {  // what the other end has said, with changes
        auto bytes = from.said();
        if (bytes.empty()) break;
        const auto before = bytes;
        for (unsigned i = 0, count = 1 + choices.below(4); i < count; ++i) {
          const std::size_t at = (choices.byte() * 256U + choices.byte()) % bytes.size();
          bytes[at] ^= static_cast<std::byte>(choices.byte() | 1);
        }
        to.put(bytes, bytes != before);  // a second change may restore a byte
        break;
      }
      default: {  // repeats the bytes, or a part of them
        auto bytes = from.said();
        const std::size_t part = choices.flag() ? bytes.size() / 2 : bytes.size();
        to.put(ByteSpan(bytes).first(part), false);
        to.put(bytes, part > 0);
      }
    }
  }
  for (End* const end : {&manager, &client}) {
    end->turn();
    const bool changed = manager.changed || client.changed;
    const bool in = !end->failed && end->session->prove() == TlsSession::Proof::kProven;
    STDCHK_ASSERT(!in || !changed || end == &client);
    const std::size_t read = end->told - end->unread();
    STDCHK_ASSERT(read <= TlsSession::kProofBytesMax);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices(ByteSpan(reinterpret_cast<const std::byte*>(data), size));
  play(choices);
  return 0;
}
